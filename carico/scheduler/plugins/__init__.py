"""The scheduler's plugins, one file per plugin, and the modules that several of them share.

- capacity.py: Capacity, filter and score by the room per resource that nodes report
- default_preemption.py: DefaultPreemption, which pods of lower priority to evict
- image_locality.py: ImageLocality, score by images already present on the node
- inter_pod_affinity.py: InterPodAffinity, affinity and anti-affinity between pods
- node_affinity.py: NodeAffinity, node selector and node affinity
- node_declared_features.py: NodeDeclaredFeatures, kubelet features that a pod needs
- node_name.py: NodeName, pods that name their node
- node_ports.py: NodePorts, host ports
- node_resources_fit.py: NodeResourcesFit, requests against allocatable
- node_volume_limits.py: NodeVolumeLimits, volumes of a CSI driver per node
- pod_topology_spread.py: PodTopologySpread, even spread over topology domains
- priority_sort.py: PrioritySort, the order of the queue
- registry.py: plugins by name, their order and weights, plugins of other packages
- scheduling_gates.py: SchedulingGates, pods that must not be queued yet
- spread_constraints.py: compiled topology spread constraints and the system defaults
- taints.py: TaintToleration and NodeUnschedulable
- unsupported.py: Unsupported, rejects pods with features that are missing here
- volume_binding.py: VolumeBinding, claims that are bound or wait for their first consumer
- volume_matching.py: which volume or provisioner can serve a claim, and from which nodes
- volume_progress.py: state of the volumes of a pod in flight
- volume_restrictions.py: VolumeRestrictions, volumes that cannot be shared
- volume_writing.py: writes the chosen volumes to the API server
- volume_zone.py: VolumeZone, volumes with zone or region labels
- volumes.py: from pods to claims, from claims to volumes, from volumes to nodes
"""
