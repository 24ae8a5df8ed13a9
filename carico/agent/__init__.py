"""The node agent: reads samples, estimates, publishes Pod-Capacity.

process.py         creates and runs all parts
loop.py            the sampling loop: read, count pods, estimate, publish
measuring.py       demand of each pod, once a second
full.py            the absolute demand that the node can hold
report_builder.py  messages of this node to the aggregator and the schedulers
checkpoint.py      the state file
exporter.py        Prometheus metrics
"""
