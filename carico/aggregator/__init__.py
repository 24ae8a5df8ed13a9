"""One model of the whole cluster, out of what every node says of itself.

rows.py     the last word of every node, one row each
costs.py    what a pod costs, out of what all nodes say, without believing any single one
merge.py    rows to a replica's aggregate, aggregates to the cluster's model
class_rows.py   what every node said of every class, one row each
class_merge.py  what a pod of one class costs, out of what its nodes say
classes.py      the table of class costs: own nodes, other replicas, what is remembered
journal.py      what changed since a version
subscribers.py  who hears of class costs, and when
pace.py     how often nodes may ask while this replica is busy
state.py    all of it together, driven by messages and the time: no I/O
door.py     bytes to state and back, refusals
peers.py    the streams to the other replicas
pages.py    metrics and the debug page
process.py  `carico aggregator`
"""
