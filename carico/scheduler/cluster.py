"""What the watches say, told to snapshot, ledger and queue, in the one order that keeps the three in agreement.

A pod is on a node as soon as this scheduler has decided so (`assume`); the watch's own news of the binding replaces
the assumption, and `unassume` takes it back if the binding failed. Everything here is synchronous.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from carico.kube.meta import KubeObject
from carico.kube.objects import Node, Pod
from carico.scheduler.changes import Action, Change, node_change, pod_change
from carico.scheduler.ledger import Ledger, Lift
from carico.scheduler.queue import Queue, is_waiting
from carico.scheduler.snapshot import Snapshot
from carico.scheduler.template import PodInfo
from carico.scheduler.units import counts, units_of


class Cluster:
    def __init__(
        self, snapshot: Snapshot, ledger: Ledger, queue: Queue, ours: Container[str], now: Callable[[], float]
    ) -> None:
        self.snapshot, self.ledger, self.queue = snapshot, ledger, queue
        self._ours, self._now = ours, now
        self.assumed: dict[str, str] = {}  # UID to node, until the watch confirms the binding
        self.on_lift: Callable[[Lift], object] = _nothing  # for pods that wait elsewhere
        self.on_pod: Callable[[Pod | None, Pod | None], object] = _nothing  # for pods in flight
        self.on_node_removed: Callable[[str], object] = _nothing

    # --- what the watches bring ---

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        now = self._now()
        if new is None or new.terminal:
            gone = new or old
            assert gone is not None
            self._pod_gone(gone, now)
            if old is not None and old.spec.node_name:
                self.queue.on_change(Change("Pod", Action.DELETE, old, None), now)
        elif new.spec.node_name:
            self._pod_assigned(old, new, now)
        else:
            self._pod_waits(old, new, now)
        self.on_pod(old, new)
        self._wake(now)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        now = self._now()
        if new is None:
            assert old is not None
            self.snapshot.remove_node(old.name)
            self.ledger.node_removed(old.name)
            self.on_node_removed(old.name)
        else:
            self.snapshot.set_node(new)
            self.ledger.node_added(new.name)
        self.queue.on_change(node_change(old, new), now)
        self._wake(now)

    def thing_changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Anything that is neither pod nor node."""
        thing = new or old
        assert thing is not None
        self.snapshot.put(thing) if new is not None else self.snapshot.remove(thing)
        action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
        self.queue.on_change(Change(type(thing).__name__, action, old, new), self._now())

    # --- what the scheduler itself does ---

    def assume(self, info: PodInfo, node: str) -> None:
        self.assumed[info.uid] = node
        self.snapshot.add_pod(info, node)
        self.snapshot.unnominate(info.uid)

    def unassume(self, info: PodInfo) -> None:
        """The binding failed. If the watch has already confirmed the pod somewhere, that stands."""
        if self.assumed.pop(info.uid, None) is not None:
            self.snapshot.remove_pod(info.uid)
            now = self._now()
            self.queue.on_change(Change("Pod", Action.DELETE, info.pod, None), now)
            self._wake(now)

    def capacity_changed(self) -> None:
        """After a report was taken into the ledger."""
        self._wake(self._now())

    # --- inside ---

    def _pod_gone(self, pod: Pod, now: float) -> None:
        self.assumed.pop(pod.uid, None)
        self.snapshot.remove_pod(pod.uid)
        self.snapshot.unnominate(pod.uid)
        self.ledger.forget(pod.uid, now)
        self.queue.delete(pod.uid)

    def _pod_assigned(self, old: Pod | None, new: Pod, now: float) -> None:
        first = old is None or not old.spec.node_name
        node = new.spec.node_name
        self.assumed.pop(new.uid, None)
        self.snapshot.add_pod(PodInfo(new), node)
        self.snapshot.unnominate(new.uid)
        if counts(new):
            self.ledger.confirm(new.uid, node, units_of(new), new.status.phase == "Pending", now)
        else:
            self.ledger.forget(new.uid, now)
        self.queue.delete(new.uid)
        self.queue.on_change(Change("Pod", Action.ADD, None, new) if first else pod_change(old, new), now)

    def _pod_waits(self, old: Pod | None, new: Pod, now: float) -> None:
        if not is_waiting(new):
            self.queue.delete(new.uid)
            self.snapshot.unnominate(new.uid)
            return
        info = PodInfo(new)
        if new.uid not in self.assumed:
            if new.status.nominated_node_name:
                self.snapshot.nominate(info, new.status.nominated_node_name)
            else:
                self.snapshot.unnominate(new.uid)
        if new.spec.scheduler_name not in self._ours:
            return
        if new.uid in self.queue:
            self.queue.update(info, pod_change(old, new), now)
        elif new.uid not in self.assumed:
            self.queue.add(info, now)

    def _wake(self, now: float) -> None:
        """Pods that wait for capacity, where a node has more of it than before."""
        for lift in self.ledger.lifts:
            self.on_lift(lift)
            row = self.snapshot.rows.number.get(lift.node)
            if row is not None:
                self.queue.wake_for_capacity(row, lift.before, lift.after, lift.room, now)
        self.ledger.lifts.clear()


def _nothing(*_: object) -> None:
    """Nobody listens."""


def ledger_differences(have: Ledger, fresh: Ledger) -> list[str]:
    """What two ledgers disagree about, node by node; none after the same pods and reports, however they came."""
    found: list[str] = []
    theirs = dict(fresh.accounts())
    for node, mine in have.accounts():
        other = theirs.pop(node, None)
        if other is None:
            found.append(f"{node}: only in one")
            continue
        pairs: list[tuple[str, Any, Any]] = [("pods", set(mine.pods), set(other.pods))]
        for name in ("capacity", "reserved", "free"):
            pairs.append(
                (name, round(float(getattr(have, name)[mine.row]), 6), round(float(getattr(fresh, name)[other.row]), 6))
            )
        found += [f"{node}: {name} {a} against {b}" for name, a, b in pairs if a != b]
    return found + [f"{node}: only in the other" for node in theirs]
