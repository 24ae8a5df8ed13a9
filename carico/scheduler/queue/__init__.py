"""The pods that have no node yet.

scheduling_queue  the scheduling queue: active, backoff, waiting, gated, held, in flight
unschedulable     groups of unschedulable pods, and what could help them
"""
