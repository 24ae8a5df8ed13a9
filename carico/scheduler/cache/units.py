"""How many pods a pod counts as: annotation `carico.dev/units`, 1 without it, fractions allowed."""

from __future__ import annotations

import math

from carico.kube.objects import Pod
from carico.pod_class import WORKLOAD

ANNOTATION = "carico.dev/units"
LARGEST = 1e6


def units_of(pod: Pod) -> float:
    """1 also for an invalid annotation: such a pod is rejected earlier, or another client bound it."""
    return read_units(pod) or 1.0


def read_units(pod: Pod) -> float | None:
    """The pod's units; None if the annotation is invalid."""
    text = pod.metadata.annotations.get(ANNOTATION)
    if text is None:
        return 1.0
    try:
        units = float(text)
    except ValueError:
        return None
    return units if math.isfinite(units) and 0 < units <= LARGEST else None


def counts(pod: Pod) -> bool:
    """Whether the ledger counts the pod."""
    return not pod.terminal and not of_baseline(pod)


def of_baseline(pod: Pod) -> bool:
    """Whether its load is part of the node's baseline: DaemonSet and static pods, and those with the label."""
    return pod.daemon or pod.static or pod.metadata.labels.get(WORKLOAD) == "false"
