"""Stage 1: converts text of the kernel to a Sample.

One module per kernel file, so that the listing shows what can be measured. Each has parsers, which take bytes, and a
source, which owns an open file and the previous values of its counters:

    sampler.py        all sources, once per tick
    source.py         the protocol of a source, and the wrapper that isolates a broken one
    procfs.py         files that remain open and are read with one call
    stat.py           cpu utilisation and the run queue
    pressure.py       cpu, memory and io pressure (PSI)
    combine.py        cpu usage from utilisation and pressure
    meminfo.py        memory
    diskstats.py      the busiest disk
    netdev.py         the network link
    cgroup.py         the cgroups of this process
    limits.py         cpu and memory against the limits of those
    pod_cgroup.py     use of one pod from its cgroup
    full.py           how much memory pods may use
    shared_kernel.py  whether other nodes share the kernel
"""
