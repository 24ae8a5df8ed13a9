"""The figures of a soak as a printed table and as numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.soak import checks
from harness.soak.history import Event

SHOWN = 8  # cases of each bad figure


@dataclass(frozen=True)
class Row:
    figure: str
    value: float | None  # None: could not be measured
    limit: float | None = None  # the figure is good up to here; None: it is neither good nor bad
    least: float | None = None
    cases: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        if self.limit is None and self.least is None:
            return True
        if self.value is None:
            return False
        return (self.limit is None or self.value <= self.limit) and (self.least is None or self.value >= self.least)


@dataclass(frozen=True)
class Seen:
    """What the soak observed besides the history."""

    lost: list[str]
    stuck: list[str]
    crashes: list[str]
    looks: int


def rows(history: list[Event], seen: Seen, pods: tuple[int, int], lease_duration: float, whole: bool) -> list[Row]:
    """`whole`: a run of the full length, which must have enough faults and show the memory growth."""
    kinds = checks.faults_by_kind(history)
    twice, over = checks.bound_twice(history), checks.over_capacity(history)
    victims, unexplained = checks.victims_beyond_need(history)
    stall, where = checks.longest_stall(history, lease_duration)
    growth = checks.memory_growth(history)
    return [
        Row("pods", pods[0]),
        Row("pods_bound", pods[1]),
        Row("faults", sum(kinds.values()), least=150 if whole else None),
        Row("fault_kinds", len(kinds)),
        Row("least_of_a_kind", min(kinds.values(), default=0), least=5 if whole else None),
        Row("looks", seen.looks, least=1 if whole else None),
        Row("evictions", checks.evictions(history), least=1 if whole else None),
        Row("lost", len(seen.lost), 0, cases=seen.lost),
        Row("bound_twice", len(twice), 0, cases=twice),
        Row("over_capacity", len(over), 0, cases=over),
        Row("waiting_that_fit", len(seen.stuck), 0, cases=seen.stuck),
        Row("victims_beyond_need", len(victims), 0, cases=victims),
        Row("victims_unexplained", unexplained),
        Row("longest_stall_s", round(stall, 1), lease_duration + 5, cases=[where] if where else []),
        Row("crashes", len(seen.crashes), 0, cases=seen.crashes),
        Row("rss_growth_mb_per_hour", None if growth is None else round(growth, 1), 5 if whole else None),
        Row("calm_share", round(checks.calm_share(history), 2)),
    ]


def show(table: list[Row], kinds: dict[str, int]) -> None:
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in kinds.items()))
    print(f"{'figure':24} {'value':>9}  {'limit':>8}")
    for row in table:
        value = "-" if row.value is None else f"{row.value:g}"
        limit = f"≤ {row.limit:g}" if row.limit is not None else f"≥ {row.least:g}" if row.least is not None else ""
        print(f"{row.figure:24} {value:>9}  {limit:>8}  {'' if row.good else 'BAD'}".rstrip())
        if not row.good:
            for case in row.cases[:SHOWN]:
                print(f"    {case}")
            if len(row.cases) > SHOWN:
                print(f"    … and {len(row.cases) - SHOWN} more")


def numbers(table: list[Row]) -> dict[str, Any]:
    return {row.figure: row.value for row in table}
