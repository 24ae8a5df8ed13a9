"""The embedded cluster as tests use it.

embedded_cluster  the embedded cluster with the interface of the real one
families          an owner of jobs with process trees that are hard to kill
node_place        a node that is this machine, under an API server
strays            processes that can be found again by a token
"""
