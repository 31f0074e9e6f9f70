"""The client side of the protocol, on the wire tables.

login       how a client proves who it is, and protects its connections
link        connections to brokers (TCP, or a pair of sockets inside this process), and the cluster
            as a client sees it: nodes, metadata, coordinators, retries
calls       an administrator's requests, one function each
admin       all of these calls in one class
buffer      records that wait to be sent: batches, futures, partitioners
producer    the sender thread, the producer's id, transactions
fetch       fetch sessions, leader epochs, fetched records
consumer    groups, positions, commits
metrics     counts and averages, under Kafka's names
"""
