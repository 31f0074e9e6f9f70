"""A cluster as it changes: samples of any Kafka cluster, and the rates and the lag between them.

sample      what one round found
pace        what a round asks for, so that a large cluster is asked no more than a small one (pure)
sampler     asks a cluster, through `kafkalog.Admin`
view        rates and lag from one sample to the next (pure)
history     the last values of many series, in bounded memory
"""
