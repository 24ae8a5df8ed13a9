"""Plugins that count pods per topology domain, and what they share.

inter_pod_affinity   InterPodAffinity, affinity and anti-affinity between pods
pod_topology_spread  PodTopologySpread, even spread over topology domains
spread_constraints   shared: compiled topology spread constraints and the system defaults
"""
