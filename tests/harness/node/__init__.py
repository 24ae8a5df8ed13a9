"""Pods on this machine.

container_pods   pods in a real containerd, made through CRI
fake_containerd  containerd's services with responses that a test sets
machine          /proc and cgroups of a recorded machine, at two instants
pod_groups       control groups like those of pods
real_node        real pods that measure themselves, and an agent that measures them
real_node_load   the program in the pods of real_node
uml              a Linux kernel as one process
uml_pods         pods with cgroup v2 controllers inside that kernel
"""
