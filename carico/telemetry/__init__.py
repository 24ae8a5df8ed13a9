"""Stage 1: kernel text becomes a Sample.

One file per subject of the kernel, so that the listing is the list of what can be watched. Each holds parsers, which
take bytes, and a source, which owns a file and two instants of its counters:

    procfs.py     files that stay open and are read anew with one call
    source.py     what a source is, and the watch that keeps one broken source from harming the others
    stat.py       cpu utilisation and the run queue
    pressure.py   cpu, memory and io pressure (PSI)
    meminfo.py    memory
    diskstats.py  the busiest disk
    netdev.py     the network link
    cgroup.py     where this process stands in the cgroup trees
    limits.py     cpu and memory against the limits found there
    pod_cgroup.py what one pod uses, by its own cgroup
    full.py       how much memory pods may fill
    shared_kernel.py  whether other nodes are on the same kernel
    combine.py    utilisation and pressure make cpu
    sampler.py    all of them, once per tick
"""
