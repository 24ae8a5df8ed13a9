"""`carico doctor`: what is there on this machine and in this cluster, what is missing, and how to fix it.

finding    one line: a part, its state, what was found, how to fix it
machine    kernel, cores, pressure, cgroups, clock             runtime   who could count pods here
cluster    API server, rights, Lease, clock                    endpoints scheduler and aggregator, TLS and reports

Nothing is changed anywhere. What was asked for by name and does not work is missing; what is only not there by default
is a warning, because Carico has another way or the reader did not mean to use it.
"""
