"""The pods that have no node yet.

scheduling_queue  a pod's path through the queue: active, backoff, waiting, gated, held, in flight
wake_ups          which waiting pods a change or a row with more room wakes up
unschedulable     groups of unschedulable pods, and what could help them
pod_groups        groups of pods that are one entry
entries           what the queue stores of a pod
"""
