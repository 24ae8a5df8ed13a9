"""The process that starts others for a supervisor, and ends them when the supervisor is gone.

    supervisor ── socket ── keeper ─┬─ job 1 ── its children …
                                    └─ job 2

A supervisor may be killed at any moment, with no chance to clean up. The keeper then reads the end of its socket and
kills everything that descends from it. It is a *subreaper*: a grandchild that made itself a session of its own and lost
its parents becomes the keeper's child, so it is found all the same. When the keeper itself is killed, the kernel kills
its children with it (PDEATHSIG), and the supervisor, a subreaper too, sweeps up the rest by the mark that every job
bears in its environment and by its control group.

    marks.py    the mark in the environment; sweeps
    family.py   who descends from whom; killing all of a family
    groups.py   control groups: limits, and who was killed for memory
    launch.py   what happens between fork and exec
    jobs.py     the jobs that run
    __main__.py the loop

It is imported without the rest of Carico: it has to start in a few milliseconds and fork cheaply.
"""
