"""A node that is the local machine: a kubelet whose containers are plain processes.

__main__.py      `python -m carico.embedded.node`
process.py       the command, and all parts together
registration.py  the Node object and its Lease
kubelet.py       the pods that are bound here, and one worker for each
worker.py        the life cycle of one pod
container.py     the life cycle of one container: start, end, back-off, restart
command.py       command, environment and limits of a container's process
status.py        the pod status that is written to the API server
objects.py       the fields of a pod that running it needs
runtime.py       sandboxes, containers and events, as in a container runtime: state without I/O
cri.py           the same over gRPC, for `carico agent --runtime cri`
usage.py         cpu and memory usage of a pod's processes, from /proc

`image` is not used: a container's command is looked up on this machine. Volumes are not mounted, ports are not
published, probes are not run, and all pods share the machine's network.
"""
