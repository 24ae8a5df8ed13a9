"""Random clusters: nodes, storage, running and waiting pods as API objects, all drawn from one seed.

cluster  `make(seed, waiting)`, which draws everything
nodes    labels with gaps, taints, cordons, little room
pods     pods that combine two or three constraints
storage  classes, volumes and claims in every state
"""
