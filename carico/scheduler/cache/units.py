"""How many pods a pod counts as: annotation `carico.dev/units`, 1 without it, fractions allowed."""

from __future__ import annotations

import math

from carico.kube.objects import Pod

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
    """Whether the ledger counts the pod: DaemonSet and static pods belong to a node's baseline."""
    return not pod.terminal and not pod.daemon and not pod.static
