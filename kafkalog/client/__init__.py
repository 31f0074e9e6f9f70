"""The protocol's client side, on the wire tables.

transport, connection   how brokers are reached (TCP, or a pair of sockets inside this process);
                        one socket: frames, versions, bounded answers
cluster, results        nodes, metadata, coordinators, retries; calls about many things
topics, configs, offsets, groups, transactions, features, nodes, replicas
                        a function a request, on results of our own
admin                   all of these in one handle
producer                accumulator (what waits), sender (its thread), tasks, identity and
                        transacting (its id), delivery (futures), partitioners, tuning
fetcher, consumer       records
"""
