"""Nodes, pods and time that are simulated, with Carico's own code between them.

The machine, its container runtime and its kubelet are models; the pod table, the estimation, the report rule and what
the cluster shares are the real code on simulated time. Everything is a function of the seed.
"""
