"""The embedded cluster: an API server in memory, a node that is the local machine, and simulated nodes.

It is not in the wheel of container images (pyproject.toml, [tool.carico]); only commands, run/ and testing/ import it.

apiserver/   the API server
node/        the local machine as a node: pods are processes
simulated/   simulated nodes: Node objects, kubelet and agents together
supervisor/  processes that cannot outlive the process that started them
cluster.py   starts all processes of an embedded cluster
clusters/    `carico cluster`: embedded clusters in the background
demo/        `carico demo`: the same pods placed in three ways
folder.py    a temporary folder that exists as long as its process
"""
