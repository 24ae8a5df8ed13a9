"""Carico places Kubernetes pods by what the nodes can really still take.

The data's way, and the folder of each stage:

    telemetry/    1   kernel text → Sample, ten times a second
    runtime/      1b  who runs here, and is the container runtime busy
    estimate/     2–7 smooth → batch → subspace → capacity signal k → Kalman filters → Pod-Capacity
    wire/         8   what the processes say to each other over gRPC
    agent/            the node process that runs 1 to 8
    aggregator/       the process that merges what the nodes learned, and tells them
    kube/             the only door to the Kubernetes API
    scheduler/    9   ledger → filter → score → reserve → bind

Around it: cli.py (the program and its commands), settings.py, config.py and flags.py (every setting, how its value is
found, its flag), logs.py, types.py (the nouns that travel), errors.py, clock.py, metrics.py, http/.
docs/architecture.md draws the picture.
"""

__version__ = "0.1.0"
