"""What our processes say to each other over gRPC.

v1/                 generated from protos/carico/wire/v1 by `make protos`
codec/              bytes ↔ types, and every check at the door
order.py            which of two messages is newer
asking.py           when a node asks the aggregator again
reporting.py        when a node reports to a scheduler
class_news.py       which class costs a node tells
refusals.py         counted always, logged seldom
identity.py         whom a caller may speak for
exchange.py         the node's side towards the aggregator
classes_client.py   what nodes and schedulers hear of class costs
report_client.py    the node's side towards the schedulers
report_server.py    the scheduler's side
server.py client.py channel.py tls.py   gRPC itself, with bytes in and bytes out
certificates.py     a self-made authority for tests, the demo and issue.py
issue.py            the command `carico certificates`
"""
