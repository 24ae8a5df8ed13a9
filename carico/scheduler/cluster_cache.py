"""Applies watch events to snapshot, ledger and queue, in the one order that keeps the three consistent.

A pod counts on its node as soon as this scheduler has assumed it there (`assume`), in snapshot and ledger; the watch
event of the binding confirms it, and `unassume` removes it if the binding failed. Everything here is synchronous.

Room becomes free in many ways: a pod ends, is deleted before or after its binding, is bound elsewhere by another
client, is resized, its binding fails, its nomination ends. All go through `_room_freed` or `_nomination_ended`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping
from functools import partial
from typing import Any

import msgspec

from carico.kube.decode import Tree, is_true_at, text_at
from carico.kube.meta import KubeObject, ObjectMeta, ObjectName
from carico.kube.objects import Node, Pod, PodSpec
from carico.scheduler.cache import requests
from carico.scheduler.cache.class_costs import ClassCostTable
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cache.trial import Trial
from carico.scheduler.cache.units import counts
from carico.scheduler.framework.cluster_events import Action, ClusterEvent, node_change, pod_change
from carico.scheduler.queue.scheduling_queue import Queue, is_waiting
from carico.types import ClassCost, ClassKey, NodeReport, Vector

RETRY_NOMINATED = 15.0  # s after an attempt; meanwhile room is kept for the pod that it may not be able to use

SCALE_DOWN = Action.POD_SCALE_DOWN.value


class ClusterCache:
    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        queue: Queue,
        ours: Container[str],
        now: Callable[[], float],
        classes: ClassCostTable,
        *,
        on_pod: Callable[[Pod | None, Pod | None], object] | None = None,
        on_node_removed: Callable[[str], object] | None = None,
    ) -> None:
        """`on_pod` and `on_node_removed` get the events that concern pods in flight."""
        self.snapshot, self.ledger, self.queue, self.classes = snapshot, ledger, queue, classes
        self._ours, self._now = ours, now
        self.assumed: dict[str, str] = {}  # UID to node, until the watch confirms the binding
        self._rows: set[int] = set()  # rows whose pods or Node changed and that may have room for more
        self._cordoned: dict[str, Node] = {}  # nodes that cannot be decoded, as they were cordoned for it
        # A node and what it has left, None where unknown: for pods that wait in another scheduler.
        self.on_room: Callable[[str, Vector | None], object] | None = None
        self.on_reprice: Callable[[Collection[str]], object] = _ignore  # families of classes
        self._on_pod, self._on_node_removed = on_pod or _ignore, on_node_removed or _ignore
        self.on_node: Callable[[Node], object] = _ignore
        snapshot.store.on_restore = self._restored

    # --- watch events ---

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        now = self._now()
        if new is None or new.terminal:
            gone = new or old
            assert gone is not None
            self._pod_gone(gone, now)
        elif new.spec.node_name:
            self._pod_assigned(old, new, now)
        else:
            self._pod_waits(old, new, now)
        self._on_pod(old, new)
        self._wake(now)

    def pod_undecodable(self, name: ObjectName, content: Tree | None) -> None:
        """Keeps the known state of a pod; of an unknown one only the node that it takes room on is used.

        None: the pod is gone, or can be decoded now.
        """
        if content is None:
            self._pod_decodable(name)
            return
        node = text_at(content, "spec", "nodeName")
        if node and name.uid not in self.snapshot.pods:
            now = self._now()
            self.queue.delete(name.uid, now)
            self._nomination_ended(name.uid, now)
            self.snapshot.add_unknown_pod(name.uid, node)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        now = self._now()
        if new is None:
            assert old is not None
            self.snapshot.remove_node(old.name)
            self.ledger.node_removed(old.name)
            if self.on_room is not None:
                self.on_room(old.name, None)
            self._on_node_removed(old.name)
        else:
            self.snapshot.set_node(new)
            self.ledger.node_added(new.name)
            self._rows.add(self.snapshot.rows.number[new.name])
            self.on_node(new)
        change = node_change(old, new)
        self.queue.on_change(change, now)
        if change.bits:
            self._retry_nominated(change, now)
        self._wake(now)

    def node_undecodable(self, name: ObjectName, content: Tree | None) -> None:
        """Keeps the known state of a node, but cordons it if that much can be read.

        None: the node is gone, or can be decoded now.
        """
        known = self._node(name.name)
        if content is not None and is_true_at(content, "spec", "unschedulable"):
            if known is not None and not known.spec.unschedulable:
                self._cordoned[name.name] = _with_cordon(known, cordoned=True)
                self.node_changed(known, self._cordoned[name.name])
        elif (cordoned := self._cordoned.pop(name.name, None)) is not None and known is not None:
            # Where the node has been decoded, `known` is that state, and the change from the cordon is not known yet.
            self.node_changed(cordoned, _with_cordon(known, cordoned=False) if known is cordoned else known)

    def _node(self, name: str) -> Node | None:
        row = self.snapshot.rows.number.get(name)
        return self.snapshot.nodes[row] if row is not None and row < len(self.snapshot) else None

    def thing_changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """An object that is neither pod nor node."""
        obj = new or old
        assert obj is not None
        self.snapshot.put(obj) if new is not None else self.snapshot.remove(obj)
        action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
        self.queue.on_change(ClusterEvent(type(obj).__name__, action, old, new), self._now())

    def wake(self, change: ClusterEvent) -> None:
        """A change that a plugin reports: requeues the pods that it could help."""
        self.queue.on_change(change, self._now())

    # --- actions of the scheduler itself ---

    def assume(self, info: PodInfo, node: str) -> None:
        """Assumes the pod on the node: from now on it takes room there."""
        now = self._now()
        self.assumed[info.uid] = node
        self.snapshot.add_pod(info, node)
        if counts(info.pod):
            self.ledger.reserve(info.uid, node, self.classes.claim(info), now)
        self._nomination_ended(info.uid, now)
        self.queue.placed(info.uid, now)
        self._wake(now)

    def unassume(self, info: PodInfo) -> None:
        """Reverts `assume` after a failed binding; no effect if a watch event has already confirmed the pod."""
        now = self._now()
        if self.assumed.pop(info.uid, None) is not None:
            self.ledger.release(info.uid)
            self._room_freed(info.uid, now)
            self._wake(now)

    def nominate(self, info: PodInfo, node: str, victims: tuple[PodInfo, ...]) -> list[PodInfo]:
        """Nominates the node while the victims terminate; returns pods of lower priority that lose their nomination."""
        now = self._now()
        self._nomination_ended(info.uid, now)
        losers = [
            other.pod
            for other in self.snapshot.nominated.values()
            if other.node == node and other.pod.priority < info.priority
        ]
        self.snapshot.nominate(info, node, victims)
        for loser in losers:
            self._nomination_ended(loser.uid, now)
            self.queue.activate(loser.uid, now)
        self._wake(now)
        return losers

    def unnominate(self, uid: str) -> None:
        now = self._now()
        self._nomination_ended(uid, now)
        self._wake(now)

    def trial(self) -> Trial:
        """A plan on snapshot and ledger; it is undone at the end."""
        return Trial(self.snapshot, self.ledger, self.classes.claim, self._now())

    def hold(self, name: str, node: str, like: PodInfo, seconds: float) -> None:
        """Reserves what this pod takes on the node, for something that is not a pod yet."""
        now = self._now()
        self.ledger.hold(name, node, self.classes.claim(like), now + seconds, now)
        self._wake(now)

    def release_hold(self, name: str) -> None:
        self.ledger.release_hold(name)
        self._wake(self._now())

    def capacity_changed(self) -> None:
        """After a report was taken into the ledger."""
        self._wake(self._now())

    def apply_report(self, report: NodeReport) -> None:
        """A node's report: what it has left, and the measured costs of the classes that run there."""
        now = self._now()
        self.ledger.report(report, now)
        self._reprice(self.classes.apply_report(report, now), now)
        self._wake(now)

    def aggregated(self, costs: Mapping[ClassKey, ClassCost], resources: tuple[str, ...]) -> None:
        """The aggregator's complete table of class costs."""
        now = self._now()
        self._reprice(self.classes.aggregated(costs, resources, now), now)
        self._wake(now)

    def tick(self) -> None:
        """Expires what depends on time alone; called every second."""
        now = self._now()
        self._reprice(self.classes.tick(now), now)
        self.ledger.expire(now)
        self._retry_nominated_in_time(now)
        self._wake(now)

    # --- inside ---

    def _reprice(self, families: Collection[str], now: float) -> None:
        if families:
            self.ledger.reprice(families)
            self.queue.reprice(families, now)
            self.on_reprice(families)

    def _pod_gone(self, pod: Pod, now: float) -> None:
        self.assumed.pop(pod.uid, None)
        self.ledger.forget(pod.uid)
        self._room_freed(pod.uid, now)
        self._nomination_ended(pod.uid, now)
        self.queue.delete(pod.uid, now)

    def _pod_decodable(self, name: ObjectName) -> None:
        node = self.snapshot.remove_unknown_pod(name.uid)
        if node:
            meta = ObjectMeta(name=name.name, namespace=name.namespace, uid=name.uid)
            left = Pod(metadata=meta, spec=PodSpec(node_name=node))
            now = self._now()
            row = self.snapshot.rows.number.get(node)
            if row is not None:
                self._rows.add(row)
            self.queue.on_change(ClusterEvent("Pod", Action.DELETE, left, None), now)
            known = self._node(node)
            if known is not None:  # as if it were added: pods that could preempt there may do so again
                self.queue.on_change(node_change(None, known), now)
            self._wake(now)

    def _pod_assigned(self, old: Pod | None, new: Pod, now: float) -> None:
        node = new.spec.node_name
        known = self.snapshot.pods.get(new.uid)
        there = known is not None and self.snapshot.name(known[1]) == node
        first = old is None or not old.spec.node_name
        self.assumed.pop(new.uid, None)
        if not there:
            self._room_freed(new.uid, now)  # bound to another node than the assumed one
        info = self.snapshot.templates.info(new)
        self.snapshot.add_pod(info, node)
        self._nomination_ended(new.uid, now)
        if counts(new):
            self.ledger.confirm(new.uid, node, self.classes.claim(info), new.status.phase == "Pending", now)
        else:
            self.ledger.forget(new.uid)
        self.queue.delete(new.uid, now)
        change = ClusterEvent("Pod", Action.ADD, None, new) if first else pod_change(old, new)
        if there and change.bits & SCALE_DOWN:
            row = self.snapshot.rows.number[node]
            self._rows.add(row)
            self._vacated(row, info.priority, now)
        self.queue.on_change(change, now)

    def _pod_waits(self, old: Pod | None, new: Pod, now: float) -> None:
        if not is_waiting(new):
            self.queue.delete(new.uid, now)
            self._nomination_ended(new.uid, now)
            return
        info = self.snapshot.templates.info(new)
        if new.uid not in self.assumed:
            self._follow_nomination(old, info, now)
        if new.spec.scheduler_name not in self._ours:
            return
        if new.uid in self.queue:
            self.queue.update(info, pod_change(old, new) if old is not None else None, now)
        elif new.uid not in self.assumed:
            self.queue.add(info, now)

    def _follow_nomination(self, old: Pod | None, info: PodInfo, now: float) -> None:
        """Takes over `nominatedNodeName` when the API server changes it; our later decisions take precedence.

        The watch event of our own patch comes late, and other updates of the pod come before it.
        """
        nominated_node = info.pod.status.nominated_node_name
        mine = self.snapshot.nominated.get(info.uid)
        if mine is not None:
            mine.pod = info
        before = old.status.nominated_node_name if old is not None else ""
        if nominated_node == before or (mine is not None and before != mine.node):
            return
        if mine is None or nominated_node != mine.node:
            self._nomination_ended(info.uid, now)
            if nominated_node:
                self.snapshot.nominate(info, nominated_node)
            self.queue.activate(info.uid, now)

    def _retry_nominated(self, change: ClusterEvent, now: float) -> None:
        """Their node is gone or has changed: it may not hold them any more, although their victims are leaving."""
        name = (change.new or change.old).name
        for nominated in list(self.snapshot.nominated.values()):
            if nominated.node == name:
                self.queue.activate(nominated.pod.uid, now)

    def _retry_nominated_in_time(self, now: float) -> None:
        """No event shows that a node still does not hold them although the reports show that their victims are gone."""
        for nominated in list(self.snapshot.nominated.values()):
            queued = self.queue.get(nominated.pod.uid)
            if queued is not None and now - queued.failed_at >= RETRY_NOMINATED:
                self.queue.activate(queued.uid, now)

    def _restored(self, assumed: KubeObject, present: KubeObject) -> None:
        """A volume or claim that was assumed for a pod is as before: no watch event will wake the pods that wait."""
        if not self.ledger.trying:  # else it was assumed in the same trial, and no attempt has seen it
            self.queue.on_change(ClusterEvent(type(present).__name__, Action.UPDATE, assumed, present), self._now())

    def _room_freed(self, uid: str, now: float) -> None:
        """Removes the pod from its node, assumed or bound, and requeues the pods that this could help."""
        known = self.snapshot.pods.get(uid)
        if known is None:
            return
        info, row = known
        node = self.snapshot.name(row)
        self._rows.add(row)
        self.snapshot.remove_pod(uid)
        for nominated in self.snapshot.nominated.values():
            if nominated.victims.pop(uid, None) is not None:
                nominated.vacated_at = now
                if not nominated.victims:
                    self.queue.activate(nominated.pod.uid, now)
        there = _on_node(info.pod, node)
        self.queue.on_change(ClusterEvent("Pod", Action.DELETE, there, None), now)
        self._vacated(row, info.priority, now)

    def _vacated(self, row: int, priority: int, now: float) -> None:
        """Room that was taken by, or kept for, a pod of this priority is free: others may preempt there now."""
        if row < len(self.snapshot):
            self.queue.on_vacated(row, priority, partial(self._evictable, row), now)

    def _evictable(self, row: int, priority: int) -> Mapping[str, float]:
        """What pods below this priority request on the row, by resource."""
        lower = [pod for pod in self.snapshot.on[row].values() if pod.priority < priority]
        total: Counter[str] = Counter({requests.PODS: len(lower)})
        for pod in lower:
            total.update(pod.requests)
        return total

    def _nomination_ended(self, uid: str, now: float) -> None:
        """Ends the pod's nomination and requeues the pods that were rejected because of it."""
        nominated = self.snapshot.nominated.get(uid)
        if nominated is None:
            return
        self.snapshot.unnominate(uid)
        row = self.snapshot.rows.number.get(nominated.node)
        if row is not None:
            self.queue.on_row(row, now)
            self._vacated(row, nominated.pod.priority, now)

    def _wake(self, now: float) -> None:
        """Wakes up pods that wait for an amount, on rows that may have more of it than before."""
        rows, self._rows = self._rows | self.ledger.touched, set()
        if self.on_room is not None:
            for row in self.ledger.touched:
                if name := self.snapshot.rows.names[row]:
                    self.on_room(name, self.ledger.amounts(row) if self.ledger.is_fresh(row, now) else None)
        self.ledger.touched.clear()
        for row in rows:
            self.queue.on_row(row, now)


def _on_node(pod: Pod, node: str) -> Pod:
    """The pod as queueing hints expect it: with the node that it was on, also if it was only assumed there."""
    if pod.spec.node_name == node:
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def _ignore(*_: object) -> None:
    """The default callback."""


def ledger_differences(have: Ledger, fresh: Ledger) -> list[str]:
    """The differences of two ledgers, by node; none after the same pods and reports, in any order."""
    found: list[str] = []
    theirs = dict(fresh.accounts())
    for node, mine in have.accounts():
        other = theirs.pop(node, None)
        if other is None:
            found.append(f"{node}: only in one")
            continue
        pairs: list[tuple[str, Any, Any]] = [("pods", set(mine.pods), set(other.pods))]
        for name in ("pod_capacity", "reserved", "free"):
            pairs.append(
                (name, round(float(getattr(have, name)[mine.row]), 6), round(float(getattr(fresh, name)[other.row]), 6))
            )
        found += [f"{node}: {name} {a} against {b}" for name, a, b in pairs if a != b]
    return found + [f"{node}: only in the other" for node in theirs]


def _with_cordon(node: Node, *, cordoned: bool) -> Node:
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=cordoned))
