"""What the scheduler knows: nodes, pods and other objects as arrays, and what every node has left. No I/O.

Nodes, pods, objects
    snapshot         nodes and their pods, one row per node, in arrays
    rows             the assignment of nodes to rows, and the journal of changed rows
    trial            a plan tried on snapshot and ledger, and undone
    label_columns    node labels as columns of integers
    row_groups       rows grouped by a common property, such as taints
    host_ports       host ports in use
    object_store     the other objects: namespaces, services, volumes and so on
    template         pods with equal requirements share one Template; PodInfo
    requests         resource requests of a pod, as kube-scheduler computes them
    pod_indexes      indexes over the pods on nodes, which plugins register
    affinity_terms   compiled inter-pod affinity terms
    pod_set_index    index of the pod selectors that a pod may match
    pod_match_counts  number of matching pods on each node, per selector

Amounts
    ledger           what nodes have left: the reported room minus reservations
    accounts         what the ledger stores per node and per pod
    room             the ledger's columns: room, reserved and left
    freshness        until when each node's report is fresh
    fits             how many pods of one charge fit on each node
    charge           what a pod takes of its node: Claim, Charge and Sum
    units            the units annotation; which pods the ledger counts
    class_costs      the measured or guessed cost of each class of pods
    class_merge      merges the costs that several nodes measured
    probes           number of pods of unmeasured classes, by row
"""
