"""Carico's filters against kube-scheduler's own, over random clusters and random pods.

    world     a random cluster and random pods, all from one seed
      nodes, storage, pods   its parts
    plane     etcd, an API server and a stock kube-scheduler; no controllers, so nothing moves
    recorder  the extender that writes down every feasible set kube-scheduler found, and rejects it
    compare   the same objects through Carico's filters, and the differences

`PYTHONPATH=tests python -m conformance --pods 20000 --seed 7` runs any number of them.
"""
