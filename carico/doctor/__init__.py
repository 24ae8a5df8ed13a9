"""`carico doctor`: what is there on this machine and in this cluster, what is missing, and how to fix it.

finding    one line: a part, its state, what was found, how to fix it
machine    kernel, cores, counters, pressure, cgroups, clock source
runtime    the runtime or cgroups that can count pods here
cluster    API server, clocks, rights, Lease, nodes
endpoints  scheduler and aggregator, TLS and reports

Nothing is changed anywhere. What was requested by name and does not work is missing; what is only absent by default is
a warning, because Carico has an alternative or the user did not intend to use it.
"""
