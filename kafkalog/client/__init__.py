"""The protocol's client side: one small blocking client on the wire tables.

connection   one socket: frames, versions agreed, answers bounded
cluster      nodes, metadata, coordinators, retries
calls        one function a request: topics, configs, offsets, groups
producer, fetcher, consumer   on top of these
"""
