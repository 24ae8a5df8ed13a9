"""Plugins for volumes, and what they share.

Plugins
    volume_binding       VolumeBinding, claims that are bound or wait for their first consumer
    volume_restrictions  VolumeRestrictions, volumes that cannot be shared
    volume_zone          VolumeZone, volumes with zone or region labels
    node_volume_limits   NodeVolumeLimits, volumes of a CSI driver per node

Shared
    pod_volumes          from pods to claims, from claims to volumes, from volumes to nodes
    matching             which volume or provisioner can serve a claim, and from which nodes
    progress             state of the volumes of a pod in flight
    writing              writes the chosen volumes to the API server
"""
