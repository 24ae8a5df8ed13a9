"""The embedded clusters of `carico cluster`, which run until they are deleted.

home.py    the folder of a cluster, and whether it runs
daemon.py  the background process of a cluster
"""
