"""Cpu usage as one number from utilisation and pressure (PSI, https://docs.kernel.org/accounting/psi.html).

Utilisation does not change once all cores are busy, pressure is near 0 before that; their mean rises linearly up to two
busy tasks per core (docs/signal.md has the measured curve).

A task throttled by a CPU limit waits too, so a single throttled pod raises the machine's pressure on idle cores. Where
the throttled time of pods is measured, it is subtracted (`without_throttled`). In addition pressure is limited to
utilisation: during a shortage of the machine every core is busy, so the share of time with a shortage is at most
utilisation. The limit loses nothing where the machine is short, and throttled processes that are not pods can at most
make cpu equal to utilisation.
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
    """Pressure without the throttling by cpu limits.

    `throttled` is the share of time that pods were throttled, of which pressure includes an unknown part: on a machine
    that is short of cpu anyway, none. `queue` is the run queue as a share of the processors: throttled tasks are not in
    it, so it is a lower bound of the result.

    >>> without_throttled(0.8, throttled=0.8, queue=0.0), without_throttled(1.0, throttled=0.8, queue=1.0)
    (0.0, 1.0)
    >>> without_throttled(0.3, throttled=0.0, queue=0.9)
    0.3
    """
    return min(pressure, max(pressure - throttled, queue))
