"""`carico cluster`: embedded clusters that run until they are deleted.

command.py     create, delete, kubeconfig, list
home.py        the folder of a cluster, and whether it runs
supervisor.py  the background process of a cluster
"""
