"""The scheduler: chooses nodes for pods by filters, scores and the Pod-Capacity that nodes report.

    informers ─► cluster_cache ─┬─► cache/ ───────────────────┐
    reports ──────────┘         └─► queue/ ─► cycle/ ─► filters and scores of plugins/ ─► binding

cache/       nodes, pods and other objects as arrays; the ledger of what nodes have left
framework/   the contract between scheduler and plugins, and what runs plugins
plugins/     the policies, and their registry
queue/       pods without a node
cycle/       the scheduling cycle and the binding cycle of one pod
extender/    Pod-Capacity for a stock kube-scheduler
http/        health, metrics, explain, dashboard; and the client of them

cluster_cache       applies watch events, reports and assumed pods to cache and queue
informers           the reflectors of all kinds of objects
reports             applies the agents' reports, and sends allocatable and classes to the agents
certificates/       the leader makes and renews the authority and the servers' certificates
node_capacities/    NodeCapacity objects, which `kubectl get ncap` shows
kubelet_rejections  counts pods that a kubelet rejected after binding
assembly            builds the parts of a scheduler from its settings, without a network
process             the process: watches, reports, Lease, scheduling loop, shutdown
enabled_parts       which parts the settings switch on, for the rights in the API server
metrics             the metrics of the process
gc_control          runs the garbage collector outside the scheduling cycles

A folder imports only what is before it in this order: cache, framework, plugins | queue, cycle, extender | http; `make
check` enforces it. Plugins import framework, cache and their own family, and nothing else of the scheduler.
"""
