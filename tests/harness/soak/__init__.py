"""The soak: faults on real components, the history of what happened, and checks of it. bench/soak.py runs it.

agents    the agents of the soak's nodes
checks    the figures of a soak, from its history
cluster   its nodes, priorities and accounts
faults    its faults
history   its events, and the cluster state derived from them
looks     searches for pods that wait although they fit
made_up   events of made-up histories
objects   the API objects of faults
observer  watches of the API server, independent of Carico
proxy     the faulty proxy between a replica and the API server
recorder  the history while it is written
replicas  the scheduler processes
report    the figures as a table
workload  the pods
"""
