"""The answer of `explain`, as a structure and as a table."""

from __future__ import annotations

from typing import Any

import msgspec

from carico.table import table

QUEUES = {
    "active": "in the active queue",
    "backoff": "in back-off after a failed attempt",
    "waiting": "unschedulable: waits for a change that could help",
    "gated": "gated: not tried until its gates are removed",
    "grouped": "waits with the other pods of its group",
}


class NodeVerdict(msgspec.Struct, omit_defaults=True):
    node: str
    feasible: bool
    reasons: dict[str, list[str]] = {}  # by plugin
    scores: dict[str, float] = {}  # by plugin, weighted
    total: float = 0.0
    free: float | None = None  # pods; None without a report
    capacity: float | None = None
    reserved: float = 0.0
    report_age: float | None = None  # s
    stale: bool = False
    left: dict[str, float] = {}  # by resource, absolute demand: what is not reserved; empty where no room is reported
    room: str = ""  # the same as text
    details: dict[str, list[str]] = {}  # by plugin that rejected the node: what it adds to its reasons, with numbers


class Explanation(msgspec.Struct, omit_defaults=True):
    pod: str
    profile: str
    units: float
    needs: str = ""  # as text, with its source
    message: str = ""
    choice: list[str] = []  # nodes with the highest score: one of them would be chosen
    bound_to: str = ""
    waits_in: str = ""  # the queue
    preemption: dict[str, Any] = {}  # node and victims, if evicting pods would help; no victims: terminating already
    notes: list[str] = []  # what this answer does not take into account
    nodes: list[NodeVerdict] = []


def rounded(pods: float) -> float:
    """For people: a difference of equal sums is no -0.0.

    >>> rounded(2.50049), rounded(0.3 - 0.1 - 0.2)
    (2.5, 0.0)
    """
    return round(pods, 3) + 0.0


def as_table(result: Explanation, *, wide: bool = False) -> str:
    """`wide` adds the node's report and what is reserved for other pods there.

    >>> print(as_table(Explanation("default/a", "carico", 1.0, nodes=[NodeVerdict("n1", True, free=2.5, total=90.0)])))
    default/a, profile carico, 1 unit
    NODE  FREE  SCORE  VERDICT
    n1     2.5   90.0  ok
    >>> nearly_full = NodeVerdict("n2", False, free=-0.04, capacity=1.0, reserved=-0.0, report_age=1.0)
    >>> print(as_table(Explanation("default/a", "carico", 1.0, nodes=[nearly_full]), wide=True).splitlines()[-1])
    n2     0.0       1.0       0.0      1s     ?      -
    """
    columns = ("CAPACITY", "RESERVED", "REPORT", "ROOM") if wide else ()
    lines = []
    for v in result.nodes:
        free = "?" if v.free is None else f"{v.free:z.1f}"
        score = f"{v.total:.1f}" if v.feasible else "-"
        lines.append((v.node, free, *(_figures(v) if wide else ()), score, _verdict(v, wide=wide)))
    head = ("NODE", "FREE", *columns, "SCORE", "VERDICT")
    return "\n".join([*_head(result), table(head, lines, right=range(1, len(head) - 1))])


def _figures(v: NodeVerdict) -> tuple[str, str, str, str]:
    age = "never" if v.report_age is None else f"{v.report_age:g}s{' (stale)' if v.stale else ''}"
    return "?" if v.capacity is None else f"{v.capacity:z.1f}", f"{v.reserved:z.1f}", age, v.room or "?"


def _verdict(v: NodeVerdict, *, wide: bool) -> str:
    if v.feasible:
        scores = ", ".join(f"{plugin} {score:g}" for plugin, score in v.scores.items())
        return f"ok ({scores})" if scores else "ok"
    why = "; ".join(f"{plugin}: {', '.join(texts)}" for plugin, texts in v.reasons.items())
    shown = f"has room for {v.room}" if wide else None  # it has a column of its own there
    more = [text for texts in v.details.values() for text in texts if text != shown]
    return f"{why} ({', '.join(more)})" if more else why


def _head(result: Explanation) -> list[str]:
    head = [f"{result.pod}, profile {result.profile}, {result.units:g} {'unit' if result.units == 1 else 'units'}"]
    if result.needs:
        head.append(result.needs)
    if result.bound_to:
        head.append(f"runs on {result.bound_to}")
    if result.waits_in:
        head.append(QUEUES.get(result.waits_in, f"waits ({result.waits_in})"))
    if result.choice:
        head.append(f"would go to {' or '.join(result.choice[:5])}{' …' if len(result.choice) > 5 else ''}")
    if result.message:
        head.append(result.message)
    if result.preemption:
        head.append(_preemption(result.preemption["node"], result.preemption["victims"]))
    return head + [f"note: {note}" for note in result.notes]


def _preemption(node: str, victims: list[str]) -> str:
    if not victims:
        return f"waits for pods that were evicted from {node} to leave"
    return f"evicting {', '.join(victims)} from {node} would make room"
