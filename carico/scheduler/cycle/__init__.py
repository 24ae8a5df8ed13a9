"""The scheduling cycle and the binding cycle of one pod.

    queue ─► scheduling_cycle ─► binding_cycle ─► binding_finisher
                    └─► failures ─► evictions

profiles          a profile: the plugins and weights for one schedulerName
profile_settings  reads and validates the profiles of the settings file
scheduling_cycle  the scheduling cycle of one pod
group_cycle       the scheduling cycle of a group of pods: all get a node, or none
pod_grouping      which pods are one entry of the queue, by plugins
failures          unschedulable pods: preemption, condition, Event, requeue
evictions         evicts the victims of nominated pods
binding_cycle     Permit and the binding cycle
binding_slots     limits concurrent binding requests
unknown_outcome   finds the outcome of a binding whose answer was lost
binding_finisher  ends a binding cycle: reservation, requeue, Event, metrics
decision_log      the ring of decisions, and their replay
"""
