"""Classes of pods as they are displayed: number of pods, use of one pod, and the suggested request.

The suggested request is a high quantile of the measured CPU time and working set of the pods; never of demand, which
also counts threads that wait for a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec

from carico.scheduler.cache.accounts import PodEntry
from carico.scheduler.cache.charge import Claim
from carico.scheduler.cache.class_costs import ClassCostTable, ClassFigures
from carico.scheduler.cache.class_merge import merged
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.requests import CPU, MEMORY

SHOWN = ("cpu", "memory")
CORE = 4 * 2.0**30  # bytes of memory that weigh as much as a core when rows are sorted
STEP = {"cpu": 0.01, "memory": 2.0**20}  # to which a suggestion is rounded up


class ClassRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One family of classes. Amounts are cores and bytes, by resource."""

    family: str
    namespace: str
    pods: int = 0  # on nodes now
    measured: float = 0.0  # pods behind the figures, older ones weighted less; 0: none was measured
    nodes: int = 0  # that measured it
    revisions: int = 0  # that were measured
    source: str = ""  # aggregator or nodes
    age: float = 0.0  # s since the last update
    charged: dict[str, float] = {}  # what is reserved for one pod, as demand
    uses: dict[str, float] = {}  # the mean
    spread: dict[str, float] = {}  # standard deviation between pods
    requests: dict[str, float] = {}  # the mean of its pods
    suggested: dict[str, float] = {}  # suggested request of one pod

    @property
    def difference(self) -> float:
        """How much the requests of all its pods together differ from the suggested ones, in cores."""
        if not self.suggested:
            return 0.0
        cpu, memory = (abs(self.requests.get(name, 0.0) - self.suggested.get(name, 0.0)) for name in SHOWN)
        return self.pods * (cpu + memory / CORE)

    @property
    def weight(self) -> float:
        """What all its pods together cost, in cores."""
        return self.pods * (self.charged.get("cpu", 0.0) + self.charged.get("memory", 0.0) / CORE)


ORDERS: dict[str, Callable[[ClassRow], tuple[float, str]]] = {
    "difference": lambda row: (-row.difference, row.family),
    "cost": lambda row: (-row.weight, row.family),
    "pods": lambda row: (-row.pods, row.family),
    "name": lambda row: (0.0, row.family),
}


def class_rows(classes: ClassCostTable, ledger: Ledger, now: float, order: str = "difference") -> list[ClassRow]:
    """Every family that was measured or has a pod on a node."""
    known: dict[str, list[ClassFigures]] = {}
    for key, figures in classes:
        known.setdefault(key.family, []).append(figures)
    families = dict.fromkeys([*known, *ledger.families()])
    rows = [_row(family, known.get(family, []), ledger.of_family(family), classes, now) for family in families]
    return sorted(rows, key=ORDERS[order])


def _row(
    family: str, known: list[ClassFigures], pods: Iterable[PodEntry], classes: ClassCostTable, now: float
) -> ClassRow:
    entries = list(pods)
    key = entries[0].claim.key if entries else known[0].cost.key
    row = ClassRow(family, key.namespace, pods=len(entries), requests=_mean_requests(entries))
    if not known:
        return row
    newest = max(known, key=lambda figures: figures.at)
    cost = merged(key._replace(revision=""), [f.cost for f in known if f.resources == newest.resources])
    charge = classes.charge(Claim(newest.cost.key))
    index = {name: newest.resources.index(name) for name in SHOWN if name in newest.resources}
    use_high = {name: cost.use_high[i] for name, i in index.items()}
    return msgspec.structs.replace(
        row,
        measured=round(cost.weight, 1),
        nodes=cost.nodes,
        revisions=len(known),
        source=newest.source,
        age=round(now - newest.at, 1),
        charged={} if charge.cost is None else {name: charge.cost[i] for i, name in enumerate(SHOWN)},
        uses={name: min(cost.mean[i], use_high[name]) if use_high[name] else cost.mean[i] for name, i in index.items()},
        spread={name: math.sqrt(max(0.0, cost.variance[i])) for name, i in index.items()},
        suggested={name: rounded_up(amount, STEP[name]) for name, amount in use_high.items() if amount > 0},
    )


def _mean_requests(entries: list[PodEntry]) -> dict[str, float]:
    if not entries:
        return {}
    cores = sum(entry.claim.requests.get(CPU, 0) for entry in entries) / 1000
    memory = float(sum(entry.claim.requests.get(MEMORY, 0) for entry in entries))
    return {"cpu": cores / len(entries), "memory": memory / len(entries)}


def rounded_up(amount: float, step: float) -> float:
    """
    >>> rounded_up(0.312, 0.01), rounded_up(1.0, 0.01)
    (0.32, 1.0)
    """
    return round(math.ceil(amount / step - 1e-9) * step, 6)


def quantities(amounts: dict[str, float]) -> str:
    """As in a manifest: cpu, memory.

    >>> quantities({"cpu": 0.35, "memory": 461373440}), quantities({"cpu": 2.0, "memory": 0.0}), quantities({})
    ('350m, 440Mi', '2, none', '?')
    """
    if not amounts:
        return "?"
    cpu, memory = amounts.get("cpu", 0.0), amounts.get("memory", 0.0)
    cores = f"{cpu:g}" if cpu == int(cpu) else f"{1000 * cpu:.0f}m"
    return f"{cores if cpu else 'none'}, {f'{memory / 2**20:.0f}Mi' if memory else 'none'}"
