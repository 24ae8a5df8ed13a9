"""`carico demo`: the same work three times on this machine, and what each way of placing it did to the pods.

command.py   the word and its order
programs.py  what runs in the pods, started as a plain file: no import of Carico slows a pod down
workload.py  how many pods, how much work in each
job.py       one run: pods are created, watched and timed
latency.py   the answers of a small server that runs beside
figures.py   what came out, as numbers and as a table
picture.py   … and as a picture
progress.py  what is to be seen meanwhile
"""
