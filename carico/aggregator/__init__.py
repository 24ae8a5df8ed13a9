"""One model of the whole cluster, out of what every node says of itself.

rows.py     the last word of every node, one row each
costs.py    what a pod costs, out of what all nodes say, without believing any single one
merge.py    rows to a replica's aggregate, aggregates to the cluster's model
state.py    all of it together, driven by messages and the time: no I/O
door.py     bytes to state and back, refusals
peers.py    the streams to the other replicas
pages.py    metrics and the debug page
process.py  `carico aggregator`
"""
