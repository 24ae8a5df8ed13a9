"""What our processes say to each other over gRPC.

    v1/         generated from protos/carico/wire/v1 by `make protos`
    codec/      bytes ↔ types, and every check at the door
    order.py    which of two messages is newer
    asking.py   when a node asks the aggregator again
    reporting.py  when a node reports to a scheduler
    identity.py   whom a caller may speak for
    server.py, client.py   the only files that hold sockets

Everything but server.py, client.py, channel.py and identity.py is free of I/O.
"""
