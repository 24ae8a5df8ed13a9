"""The scheduler's plugins: policies only, one file per plugin.

registry.py                plugins by name, their order and weights, plugins of other packages

capacity.py                Capacity, filter and score by the room per resource that nodes report
capacity_explained.py      what `carico explain` says about nodes that Capacity rejects
default_preemption.py      DefaultPreemption, which pods of lower priority to evict
image_locality.py          ImageLocality, score by images already present on the node
node_affinity.py           NodeAffinity, node selector and node affinity
node_declared_features.py  NodeDeclaredFeatures, kubelet features that a pod needs
node_name.py               NodeName, pods that name their node
node_ports.py              NodePorts, host ports
node_resources_fit.py      NodeResourcesFit, requests against allocatable
priority_sort.py           PrioritySort, the order of the queue
scheduling_gates.py        SchedulingGates, pods that must not be queued yet
taints.py                  TaintToleration and NodeUnschedulable
unsupported.py             Unsupported, rejects pods with features that are missing here

topology/                  PodTopologySpread, InterPodAffinity
volume/                    VolumeBinding, VolumeRestrictions, VolumeZone, NodeVolumeLimits
"""
