"""The embedded cluster: an API server in memory, a node that is the local machine, and simulated nodes.

api/                  the API server
node/                 the local machine as a node: pods are processes
run/                  `carico run`: a command over a list of inputs
clusters/             `carico cluster`: embedded clusters in the background
demo/                 `carico demo`: the same pods placed in three ways
cluster.py            starts all processes of an embedded cluster
folder.py             a temporary folder that exists as long as its process
processes.py          starts processes that cannot outlive the process that started them
keeper/               the job supervisor: a small process that starts and ends them
simulated.py          simulated nodes: Node objects, kubelet and agents together
simulated_agent.py    the agent of a simulated node
simulated_kubelet.py  the kubelet of all simulated nodes
"""
