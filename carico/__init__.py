"""Carico schedules Kubernetes pods by the measured free capacity of the nodes.

Stages, in the order of the data flow (docs/architecture.md has a diagram):

    telemetry/    1   kernel text → Sample, ten times a second
    runtime/      1b  which pods run on this node, whether the container runtime is busy, use of each pod
    estimate/     2–7 smoothing → demand per class → baseline → room per resource → Pod-Capacity
    wire/         8   gRPC messages between the processes
    agent/            the node process, which runs 1 to 8
    aggregator/       the process that merges the nodes' models and sends the result to them
    kube/             the only client of the Kubernetes API
    scheduler/    9   ledger → filter → score → reserve → bind

The program `carico`:

    cli.py        the program and the list of its commands
    commands/     one file per command
    terminal/     what `carico top` shows on a terminal
    recording/    samples outside an agent: live, or in files
    doctor/       the checks of `carico doctor`

For trying out and testing; not in the wheel of container images:

    embedded/     a cluster on this machine: API server, node, supervisor of processes, demo
    run/          `carico run`
    testing/      helpers for tests of Carico and of plugins
    sim/          simulated nodes and time, for benchmarks

Shared:

    http/         HTTP/1.1 server of agent, aggregator and scheduler
    settings.py   every setting with its default
    config.py     reads the values of settings from file, environment and flags
    flags.py      command-line flags
    durations.py  parses and formats durations
    output.py     output formats: JSON, YAML, table
    table.py      tables and colours
    system.py     which commands run on which operating system
    types.py      data types that are passed between stages and processes
    pod_class.py  the class of a pod from its labels, annotations and images
    errors.py     all exceptions
    clock.py      time as a dependency, and the ticker
    process.py    runs the parts of a process until a signal
    backoff.py    pauses between attempts
    columns.py    arrays that grow
    tick_loop.py  the event loop of the agent
    logs.py       log formats
    metrics.py    Prometheus registry and common metrics
    certificate_metrics.py  expiry of certificates as a metric
    tls.py        reloads certificate files; TLS contexts of clients
    token_claims.py  what a ServiceAccount token claims; its file
    x509.py       reads the expiry of a certificate
"""

__version__ = "0.1.0"
