"""The broker: Kafka's protocol over the logs of a data directory.

A module here is one part of a broker, which `broker` starts and `node` names for the handlers; what
exists more than once has a folder: `handlers`, `threads`, `network`, `transactions`.
"""
