"""Schedulers for tests: as processes, and without a network on a manual clock.

binding_world    a whole scheduler, and an API server that accepts, loses and answers as set
example_plugins  one small plugin of each sort that registers more than extension points
fleet            `carico scheduler` as a process, and agents of simulated nodes
offline          a scheduler that tests drive by watch events, cycles and reports
resting          API server, kubelets and agents around a scheduler, until nothing moves
resting_storage  the same with claims and volumes
standby          a replica that does not lead, and a stream of pods
worlds           a small cluster in memory, with the answers of its filters and scores
"""
