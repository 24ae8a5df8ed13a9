"""The commands of `carico`, one file each, named as the command. cli.py has the list with groups and descriptions.

A module has `add_arguments(parser)` and `run(args)`, which returns the exit code. It is imported when its command is
used. What is worth a test without a command line is in the folder of its subject.

On this machine
    demo                the same pods placed in three ways (embedded/demo/)
    cluster             embedded clusters in the background (embedded/clusters/)
    run                 a command over a list of inputs (run/)
    top                 usage and Pod-Capacity, live (terminal/)
    record              telemetry into a file (recording/)
    replay              a recording through the estimation (recording/)
    simulate            schedulers in a scenario, on simulated nodes and time (sim/)

In a cluster
    agent               the process on every node (agent/)
    aggregator          the aggregation server (aggregator/)
    scheduler           the scheduler (scheduler/)
    certificates        a private CA and the certificates of the three (wire/certificates.py)

Ask and check
    explain             why a pod runs where it runs, or does not, or where it would go
    classes             what pods of each class use
    decisions           past decisions of a scheduler, and their replay
    doctor              what is missing here or in the cluster (doctor/)

Other
    completion          scripts for bash, zsh and fish
    help                the help of a command
    version             the version
"""
