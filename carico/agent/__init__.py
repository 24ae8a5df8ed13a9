"""The node process: samples in, Pod-Capacity out.

loop.py        the beat: read, count pods, estimate, publish
memory.py      what survives a restart
exporter.py    what Prometheus sees
node.py        what this node says of itself to the aggregator and the schedulers
process.py     the command `carico agent`
top.py record.py replay.py   the same way on a terminal, into a file and out of it
"""
