"""Events of made-up histories."""

from __future__ import annotations

from typing import Any

from harness.soak.history import Bound, Event, NodeUp, Nominated, PodSeen, Reported


def pod(uid: str, at: float = 0.0, **changes: Any) -> PodSeen:
    return PodSeen(at=at, uid=uid, key=f"soak/{uid}", **changes)


def node(name: str, at: float = 0.0, cpu: int = 4000, full: float = 10.0) -> list[Event]:
    return [NodeUp(at=at, node=name, cpu=cpu), Reported(at=at, node=name, full=full, capacity=full)]


def bound(uid: str, name: str, at: float) -> Bound:
    return Bound(at=at, uid=uid, node=name)


def nominated(at: float, name: str = "a", uid: str = "high") -> Nominated:
    return Nominated(at=at, uid=uid, node=name)
