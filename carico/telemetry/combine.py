"""Utilisation and pressure make one number, cpu.

Utilisation alone is blind past the last free core, pressure alone before it; their mean grows evenly until two busy
tasks per core (docs/signal.md has the measured curve).

The gate: a task that a CPU limit holds back waits too, so a single throttled pod drives the machine's pressure up on
idle cores. But while a shortage is the machine's, every core is busy, so the share of time in which there is one
cannot be more than utilisation. Pressure counts only that far: it loses nothing where the machine is short, and a
throttled pod cannot more than make cpu equal to utilisation.
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
