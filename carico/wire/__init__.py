"""The gRPC messages and streams between Carico's processes.

v1/                 generated from protos/carico/wire/v1 by `make protos`
codec/              bytes ↔ types, and every check of a received message
sequence_guard.py   which of two messages is newer
exchange_policy.py  when a node sends its model to the aggregator
report_policy.py    when a node reports to a scheduler
class_news.py       which class costs a node sends
rejection_log.py    rejected messages: always counted, seldom logged
identity.py         which nodes a caller may report for
tokens.py           callers that are identified by a ServiceAccount token
message_rate.py     the limit on messages of one stream
stream_end.py       why and when a server ends a stream
exchange.py         the node's side towards the aggregator
classes_client.py   receives class costs, for nodes and schedulers
report_client.py    the node's side towards the schedulers
report_server.py    the scheduler's side
server.py           the gRPC server, with bytes in and bytes out
turns.py            how many messages the server processes at once
client.py           gRPC streams that are kept open
channel.py          addresses of a name, and gRPC channels to them
tls.py              certificates of both sides
metrics.py          metrics of the calls that a server handles
authorities.py      certificate authorities and serving certificates in memory
certificates.py     a self-made CA for tests, the demo and `carico certificates`
"""
