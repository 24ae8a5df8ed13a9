"""Simulated nodes of an embedded cluster: pods are never started there.

__main__.py  `python -m carico.embedded.simulated`
nodes.py     Node objects, kubelet and agents together
agent.py     the agent of a simulated node
kubelet.py   the kubelet of all simulated nodes
"""
