"""Bytes to types and back. Decoding checks everything that can be checked without knowing other messages.

checks.py      the checks that all messages share
class_cost.py  ClassCost, in any message
classes.py     ClassQuery and ClassCosts
cluster.py     GlobalSubspace, and a node's view of the cluster's model
local.py       LocalSubspace
replica.py     ReplicaModel and PeerReply
report.py      NodeReport and ReportAck

Received bytes can be invalid in two ways. Bytes that are not a message raise `UndecodableMessage`: the caller ends
the stream. A message with an impossible value raises `InvalidMessage`: the rejection is sent on the stream, and
counted.
"""
