"""NodeCapacity objects: what the scheduler knows about each node, for people who use kubectl.

due         which objects are to be written, and when: state without I/O
publisher   passes them to the writer

The leader writes them; no decision reads them.
"""
