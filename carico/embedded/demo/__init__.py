"""`carico demo`: the same work three times on the local machine, and the effect of each placement on the pods.

programs.py  what runs in the pods, started as a plain file: no import of Carico slows a pod down
workload.py  how many pods, how much work in each
job.py       one run: pods are created, watched and timed
latency.py   response times of a small web server on the same node
figures.py   the results, as numbers and as a table
picture.py   the results as a picture
progress.py  progress on the terminal
"""
