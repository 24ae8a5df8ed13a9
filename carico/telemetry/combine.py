"""Utilisation and pressure make one number, cpu.

Utilisation alone is blind past the last free core, pressure alone before it; their mean grows evenly until two busy
tasks per core (docs/signal.md has the measured curve).

The gate: a task that a CPU limit holds back waits too, so a single throttled pod drives the machine's pressure up on
idle cores. Where the pods' own accounting tells how long limits held them back, that time is taken off
(`without_throttled`). And while a shortage is the machine's, every core is busy, so the share of time in which there is
one cannot be more than utilisation. Pressure counts only that far: it loses nothing where the machine is short, and
throttled processes that are no pods cannot more than make cpu equal to utilisation.
"""

from __future__ import annotations


def cpu(utilisation: float, pressure: float, form: str) -> float:
    """
    >>> cpu(1.0, 0.5, "mean"), cpu(0.2, 1.0, "mean"), cpu(0.2, 1.0, "pressure"), cpu(0.2, 1.0, "utilisation")
    (0.75, 0.2, 0.2, 0.2)
    """
    if form == "utilisation":
        return utilisation
    supported = min(pressure, utilisation)
    return supported if form == "pressure" else (utilisation + supported) / 2


def without_throttled(pressure: float, throttled: float, queue: float) -> float:
    """Pressure less the waiting for cpu limits.

    `throttled` is the share of time that limits held pods back, of which pressure holds an unknown part: on a machine
    that is short anyway, none. `queue` is the run queue as a share of the processors: throttled tasks are not in it, so
    pressure does not fall below it.

    >>> without_throttled(0.8, throttled=0.8, queue=0.0), without_throttled(1.0, throttled=0.8, queue=1.0)
    (0.0, 1.0)
    >>> without_throttled(0.3, throttled=0.0, queue=0.9)
    0.3
    """
    return min(pressure, max(pressure - throttled, queue))
