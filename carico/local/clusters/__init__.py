"""`carico cluster`: embedded clusters that stay until they are deleted.

command.py     create, delete, kubeconfig, list
home.py        the folder of a cluster, and whether it runs
supervisor.py  the process in the background that a cluster lives in
"""
