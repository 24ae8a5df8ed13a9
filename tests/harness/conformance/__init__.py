"""Carico's filters against kube-scheduler's own, over random clusters and random pods.

    plane     etcd, an API server and a stock kube-scheduler; no controllers, so nothing moves
    recorder  the extender that writes down every feasible set kube-scheduler found, and rejects it
    bound     pods that are really bound, one after the other
    compare   the same objects through Carico's filters, and the differences

The clusters and pods are those of carico.testing.random_cluster.

`python -m harness.conformance --pods 20000 --seed 7` runs any number of them.
"""
