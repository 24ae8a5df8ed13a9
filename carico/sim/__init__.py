"""Simulated nodes, pods and time around Carico's real code.

The machine, its container runtime and its kubelet are models; the pod table, the estimation, the report rule and the
aggregator are the real code on simulated time. Everything is a function of the seed.

    timeline.py     simulated time
    workload.py     demand of pods over their lives
    sharing.py      processor sharing between cgroups
    machine.py      cores, memory and kernel counters of a node
    kubelet.py      kubelet and container runtime of a node
    accounting.py   counters per pod for the meter
    agent.py        the agent of a node
    federation.py   the aggregator
    admission.py    admission by reports, or by an oracle
    world.py        nodes, queue of pods and admission together
    closed_loop.py  runs and scores one case

`carico simulate` compares whole schedulers in a scenario (docs/simulator.md):

    scenario.py     reads and validates the file
    simulation.py   one scheduler in one scenario: nodes, API server, controllers and faults on one timeline
    scheduler.py    the real queue, ledger, plugins and cycle
    pods.py         what the pods of a workload do, and their Pod objects
    patterns/       generators of a pod's phases
    controllers/    what creates pods
    policies/       the schedulers to compare, as plugins
    faults/         what goes wrong
    recorder.py     every pod, and every second of every node
    figures.py      the figures of one run
    results.py      table, CSV and Parquet
    plots.py        pictures
"""
