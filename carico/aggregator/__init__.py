"""One model of the whole cluster, from what every node reports about itself.

node_table.py         the last message of every node, one row each
costs.py              what a pod costs, from the reports of all nodes; no single one is trusted
merge.py              rows to a replica's aggregate, aggregates to the cluster's model
incremental_merge.py  `merge: running`, another rule for the model, for comparison
class_rows.py         what every node reported of every class, one row each
class_merge.py        what a pod of one class costs, from the reports of its nodes
classes.py            the table of class costs: own nodes, other replicas, what is remembered
journal.py            what changed since a version
subscribers.py        which clients receive class costs, and when
pace.py               how often nodes may send while this replica is busy
state.py              all of it together, driven by messages and the time: no I/O
service.py            bytes to state and back, rejections
peers.py              the streams to the other replicas
garbage.py            when the garbage collector runs
pages.py              metrics and the debug page
process.py            creates and runs all parts
"""
