"""The protocol's client side: one blocking client on the wire tables.

transport, connection   how brokers are reached; one socket: frames, versions, bounded answers
cluster, results        nodes, metadata, coordinators, retries; calls about many things
topics, configs, offsets, groups, transactions, features, nodes, replicas
                        a function a request, on results of our own
admin                   all of these in one handle
producer, fetcher, consumer   records
"""
