"""A node that is this machine: a kubelet whose containers are plain processes.

process.py       the command, and all parts together
registration.py  the Node object and its Lease
kubelet.py       which pods belong here, and one worker for each
worker.py        the life of one pod
container.py     the life of one container: start, end, back-off, start again
command.py       what a container's process is given: command, environment, limits
status.py        what the API server is told of a pod
objects.py       the fields of a pod that running it needs
runtime.py       what runs here, as a container runtime has it: state without I/O
cri.py           the same over gRPC, for `carico agent --runtime cri`

`image` is not used: a container's command is looked for on this machine. Volumes are not mounted, ports not published,
probes not asked, and all pods share the machine's network.
"""
