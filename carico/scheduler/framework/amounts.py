"""Amounts as text for users: cores in use, not demand, and memory.

What is reserved for a pod is demand, in runnable threads; users know CPU use. The two are equal as long as no thread
waits for a CPU, so a need is shown as the measured use where that is less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from carico.kube.objects import Node
from carico.scheduler.cache import requests
from carico.scheduler.cache.charge import NUMBER, RESOURCES, Charge, Claim
from carico.scheduler.cache.class_costs import ClassCostTable, ClassFigures
from carico.types import NodeReport

SCALES = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
PRESSURES = ("memory_pressure", "io_pressure")


def cores(amount: float) -> str:
    """
    >>> cores(0.314), cores(1.0), cores(12.04), cores(-0.001)
    ('0.31 cores', '1 core', '12 cores', '0 cores')
    """
    text = _short(amount)
    return f"{text} core" if text == "1" else f"{text} cores"


def size(amount: float) -> str:
    """
    >>> size(440401920), size(1.5 * 2**30), size(0)
    ('420 MiB', '1.5 GiB', '0 MiB')
    """
    for unit, scale in SCALES:
        if amount >= scale:
            return f"{_short(amount / scale)} {unit}"
    return "0 MiB"


def amount_text(resource: str, amount: float) -> str:
    if resource == "cpu":
        return cores(amount)
    if resource == "memory":
        return size(amount)
    return f"{100 * max(0.0, amount):.0f} % of {resource.replace('_', ' ')}"


def amounts_text(amounts: Iterable[tuple[str, float]]) -> str:
    """
    >>> amounts_text([("cpu", 0.31), ("memory", 440401920)])
    '0.31 cores and 420 MiB'
    """
    parts = [amount_text(resource, amount) for resource, amount in amounts]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def busy(report: NodeReport | None, node: Node | None) -> str:
    """ "; 3.8 of 4 cores busy": use; room is demand, of which a node with `cpu: mean` holds twice its cores."""
    if report is None or node is None or "cpu" not in report.dimensions or not report.full or not report.estimate.room:
        return ""
    number = report.dimensions.index("cpu")
    all_cores = requests.allocatable(node.status.allocatable).get(requests.CPU, 0) / 1000
    used = min(all_cores, max(0.0, report.full[number] - report.estimate.room[number]))
    return f"; {used:.1f} of {all_cores:g} cores busy" if all_cores else ""


def shown_cost(charge: Charge, figures: ClassFigures | None) -> list[float]:
    """The charge of the pod, with cpu as use."""
    assert charge.cost is not None
    cost = list(charge.cost)
    if figures is not None and "cpu" in figures.resources:
        use = figures.cost.use_high[figures.resources.index("cpu")]
        if 0 < use < cost[NUMBER["cpu"]]:
            cost[NUMBER["cpu"]] = use
    return cost


def need(classes: ClassCostTable, claim: Claim, *, exact: bool = True) -> str:
    """What a pod needs and the source of the figures; not `exact`: without values that change often, for conditions."""
    charge, family = classes.charge(claim), claim.key.family
    if charge.cost is None:
        many = "1 unit" if charge.units == 1 else f"{charge.units:g} units"
        return f"needs {many} of what the mean recent pod of the node costs"
    figures = classes.figures(claim.key)
    cost = shown_cost(charge, figures)
    amounts = amounts_text((RESOURCES[number], cost[number]) for number in charge.numbers) or "nothing"
    if figures is None:
        return f"is charged {amounts} until a pod of {family} has been measured"
    pods = round(figures.cost.weight)
    on = f"{pods} pod{'' if pods == 1 else 's'}" if exact and pods else "pods"
    return f"needs {amounts} (measured on {on} of {family})"


def _short(amount: float) -> str:
    """Two significant digits, or all digits before the decimal point."""
    if amount < 0.005:
        return "0"
    digits = max(0, 1 - math.floor(math.log10(amount)))
    text = f"{amount:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
