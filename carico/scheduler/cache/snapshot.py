"""The scheduler's cache of the cluster: one row per node, and the pods on it.

Watch events and assumed pods change it, plugins read it. An assumed pod is added at once (`add_pod`) and removed again
if its binding fails; the watch event of the binding replaces it. Every change is noted in a journal, so that verdicts
cached per template can be corrected row by row.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carico.columns import grown
from carico.kube.meta import KubeObject
from carico.kube.objects import Namespace, Node, Taint
from carico.scheduler.cache import requests
from carico.scheduler.cache.host_ports import PortIndex
from carico.scheduler.cache.label_columns import LabelColumns
from carico.scheduler.cache.object_store import ObjectStore
from carico.scheduler.cache.pod_indexes import PodIndexes
from carico.scheduler.cache.pod_match_counts import PodMatchCounts
from carico.scheduler.cache.requests import Requests
from carico.scheduler.cache.row_groups import Groups
from carico.scheduler.cache.rows import Mask, RowArray, RowIndex, RowJournal
from carico.scheduler.cache.template import PodInfo, PodTemplates

Amounts = NDArray[np.int64]
_NO_LABELS: dict[str, str] = {}
ALWAYS_THERE = frozenset({requests.CPU, requests.MEMORY, requests.EPHEMERAL, requests.PODS})  # never dropped


@dataclass(slots=True)
class Nominated:
    """A waiting pod and its nominated node."""

    pod: PodInfo
    node: str
    victims: dict[str, PodInfo]  # by UID: pods that this process evicts for it, until they are deleted
    vacated_at: float = -math.inf  # s, monotonic: when the latest of them was deleted


class Snapshot:
    def __init__(self, rows: RowIndex) -> None:
        self.rows = rows
        self.templates = PodTemplates()
        self.indexes = PodIndexes()
        self.store = ObjectStore()
        self.nodes: list[Node | None] = []
        self.on: list[dict[str, PodInfo]] = []  # pods by row and UID
        self.pods: dict[str, tuple[PodInfo, int]] = {}  # UID to pod and row
        self.nominated: dict[str, Nominated] = {}  # by UID: waiting pods with a nominated node
        self.unknown_pods: dict[str, str] = {}  # UID to node of bound pods that cannot be decoded
        self.node_count = 0
        self._present: Mask = np.zeros(0, dtype=np.bool_)
        self._unschedulable: Mask = np.zeros(0, dtype=np.bool_)
        self._free: dict[str, Amounts] = {}
        self._allocatable: dict[str, Amounts] = {}
        self._users: dict[str, int] = {}  # of other resources: nodes that have it plus pods that request it
        self._none: Amounts = np.zeros(0, dtype=np.int64)  # of a resource that has no users
        self.taints: Groups[tuple[Taint, ...]] = Groups(())
        self.features: Groups[frozenset[str]] = Groups(frozenset())
        self.labels = LabelColumns(self._labels_of, self.__len__)
        self.match_counts = PodMatchCounts(self.store.namespace_labels)
        self.ports = PortIndex()
        self.priorities: Counter[int] = Counter()  # pods on nodes, by priority
        self._claim_users: dict[str, Counter[int]] = {}  # claim to row to pods that use it
        self.with_volumes: dict[int, set[str]] = {}  # row to UIDs of pods with volumes that bind
        self.tried_rows: Counter[int] = Counter()  # rows with pods that a trial added or removed
        self.node_changes = RowJournal()
        self.pod_changes = RowJournal()
        self.image_changes = RowJournal()

    def __len__(self) -> int:
        """Rows, with or without a node: the length of every mask and vector."""
        return len(self.nodes)

    @property
    def present(self) -> Mask:
        """Rows with a Node object."""
        return self._present[: len(self)]

    @property
    def unschedulable(self) -> Mask:
        return self._unschedulable[: len(self)]

    def unrequested(self, resource: str) -> Amounts:
        """Allocatable minus the requests of the pods there; below 0 where a node is overcommitted."""
        return self._read(self._free, resource)

    def allocatable(self, resource: str) -> Amounts:
        return self._read(self._allocatable, resource)

    def name(self, row: int) -> str:
        return self.rows.names[row]

    def set_node(self, node: Node) -> None:
        row = self.rows.number.get(node.name)
        old = self.nodes[row] if row is not None and row < len(self.nodes) else None
        if old is not None and not _differs(old, node):
            self.nodes[self.rows.number[node.name]] = node
            return
        if old is None:
            row = self._grow(self.rows.hold(node.name))
            self.node_count += 1
        assert row is not None
        self._write(row, node, old)

    def remove_node(self, name: str) -> None:
        """Removes the Node object; pods that are still there hold the row until they are removed."""
        row = self.rows.number.get(name)
        if row is None or row >= len(self.nodes) or self.nodes[row] is None:
            return
        self.node_count -= 1
        self._write(row, None, self.nodes[row])
        self.rows.drop(name)

    def add_pod(self, pod: PodInfo, node: str) -> None:
        """Adds a bound or assumed pod to the node; a pod that has ended takes no room."""
        known = self.pods.get(pod.uid)
        if known is not None and not pod.pod.terminal and _same_room(known[0], pod):
            row = known[1]
            if self.rows.names[row] == node:
                self.pods[pod.uid] = (pod, row)
                self.on[row][pod.uid] = pod
                if self.indexes:  # they may read more of a pod
                    self.indexes.change(known[0], row, -1)
                    self.indexes.change(pod, row, 1)
                return
        self.remove_pod(pod.uid)
        if pod.pod.terminal:
            return
        row = self._grow(self.rows.hold(node))
        self.pods[pod.uid] = (pod, row)
        self._place(pod, row, 1)
        self.pod_changes.note(row)

    def remove_pod(self, uid: str) -> None:
        known = self.pods.pop(uid, None)
        if known is None:
            return
        pod, row = known
        self._place(pod, row, -1)
        self.pod_changes.note(row)
        self.rows.drop(self.rows.names[row])

    def add_unknown_pod(self, uid: str, node: str) -> None:
        """Adds a pod that cannot be decoded: its node is known, its requests are not."""
        self.remove_unknown_pod(uid)
        self.unknown_pods[uid] = node
        self._note_pods_of(node)

    def remove_unknown_pod(self, uid: str) -> str:
        """Returns the node that it was on, or "" if it was not an unknown pod."""
        node = self.unknown_pods.pop(uid, "")
        self._note_pods_of(node)
        return node

    def rows_with_unknown_pods(self) -> list[int]:
        rows = (self.rows.number.get(node) for node in self.unknown_pods.values())
        return [row for row in rows if row is not None and row < len(self)]

    def _note_pods_of(self, node: str) -> None:
        row = self.rows.number.get(node)
        if row is not None and row < len(self):
            self.pod_changes.note(row)

    def put(self, obj: KubeObject) -> None:
        """Adds or updates an object that is neither a pod nor a node."""
        if isinstance(obj, Namespace):
            self.match_counts.namespace_changed(self.store.namespace_labels(obj.name), obj.metadata.labels)
        self.store.put(obj)

    def remove(self, obj: KubeObject) -> None:
        if isinstance(obj, Namespace):
            self.match_counts.namespace_changed(self.store.namespace_labels(obj.name), {})
        self.store.remove(obj)

    def nominate(self, pod: PodInfo, node: str, victims: Iterable[PodInfo] = ()) -> None:
        """Nominates the node for the pod: pods of lower priority must not take the room."""
        self.nominated[pod.uid] = Nominated(pod, node, {victim.uid: victim for victim in victims})

    def unnominate(self, uid: str) -> str:
        """Returns the node that was nominated, or ""."""
        nominated = self.nominated.pop(uid, None)
        return nominated.node if nominated is not None else ""

    @contextmanager
    def pretending(self, row: int, *, add: list[PodInfo], remove: list[PodInfo]) -> Iterator[None]:
        """Pods hypothetically added to or removed from the row; undone at the end, and not noted in the journal."""
        for pod in remove:
            self._place(pod, row, -1)
        for pod in add:
            self._place(pod, row, 1)
        try:
            yield
        finally:
            for pod in add:
                self._place(pod, row, -1)
            for pod in remove:
                self._place(pod, row, 1)

    # --- trials (trial.py) ---

    def try_pod(self, pod: PodInfo, row: int) -> None:
        """As `add_pod`, without a note in the journal; `tried_rows` lists the rows that differ from it."""
        self.pods[pod.uid] = (pod, row)
        self._place(pod, row, 1)
        self.tried_rows[row] += 1

    def try_without(self, uid: str) -> tuple[PodInfo, int]:
        pod, row = self.pods.pop(uid)
        self._place(pod, row, -1)
        self.tried_rows[row] += 1
        return pod, row

    def undo_try(self, row: int, on: dict[str, PodInfo]) -> None:
        """The pods of the row are these again, in this order, because their order decides between equal victims."""
        here = self.on[row]
        for pod in [pod for uid, pod in here.items() if uid not in on]:
            del self.pods[pod.uid]
            self._place(pod, row, -1)
        for uid, pod in on.items():
            if uid not in here:
                self.pods[uid] = (pod, row)
                self._place(pod, row, 1)
        self.on[row] = on
        self.tried_rows[row] -= 1
        if not self.tried_rows[row]:
            del self.tried_rows[row]

    def all_rows(self) -> RowArray:
        return np.arange(len(self), dtype=np.intp)

    def _labels_of(self, row: int) -> dict[str, str]:
        node = self.nodes[row]
        return _NO_LABELS if node is None else node.metadata.labels

    def _grow(self, row: int) -> int:
        if row < len(self.nodes):
            return row
        while len(self.nodes) <= row:
            self.nodes.append(None)
            self.on.append({})
        self._present = grown(self._present, len(self), False)
        self._unschedulable = grown(self._unschedulable, len(self), False)
        self.taints.fit(len(self))
        self.features.fit(len(self))
        return row

    def _read(self, table: dict[str, Amounts], resource: str) -> Amounts:
        """Creates no column: a pod may request a resource of any name."""
        column, length = table.get(resource), len(self.nodes)
        if column is not None:
            return column[:length] if len(column) >= length else self._column(table, resource)[:length]
        self._none = grown(self._none, len(self))
        return self._none[: len(self)]

    def _column(self, table: dict[str, Amounts], resource: str) -> Amounts:
        column = table.get(resource)
        if column is None or len(column) < len(self):
            column = grown(np.zeros(0, dtype=np.int64) if column is None else column, len(self))
            table[resource] = column
        return column

    def _write(self, row: int, node: Node | None, old: Node | None) -> None:
        had = requests.allocatable(old.status.allocatable) if old is not None else {}
        has = requests.allocatable(node.status.allocatable) if node is not None else {}
        for name in had.keys() | has.keys():
            self._column(self._allocatable, name)[row] = has.get(name, 0)
            self._column(self._free, name)[row] += has.get(name, 0) - had.get(name, 0)
            if name not in ALWAYS_THERE:
                self._use(name, (name in has) - (name in had))
        self.nodes[row] = node
        self._present[row] = node is not None
        self._unschedulable[row] = node is not None and node.spec.unschedulable
        self.taints.set(row, node.spec.taints if node is not None else ())
        self.features.set(row, frozenset(node.status.declared_features) if node is not None else frozenset())
        if (old.metadata.labels if old else None) != (node.metadata.labels if node else None):
            self.labels.update(row)
        if (old.status.images if old else ()) != (node.status.images if node else ()):
            self.image_changes.note(row)
        self.node_changes.note(row)
        self.indexes.node_changed(row)

    def _place(self, pod: PodInfo, row: int, change: int) -> None:
        """Updates everything that counts pods; `change` is +1 or −1."""
        if change > 0:
            self.on[row][pod.uid] = pod
        else:
            del self.on[row][pod.uid]
        self.priorities[pod.priority] += change
        if not self.priorities[pod.priority]:
            del self.priorities[pod.priority]
        self._spend(pod.requests, row, change)
        self.match_counts.add(pod, row) if change > 0 else self.match_counts.remove(pod, row)
        self.ports.change(pod, row, change)
        if pod.volumes:
            self._use_volumes(pod, row, change)
        if self.indexes:
            self.indexes.change(pod, row, change)

    def _spend(self, wanted: Requests, row: int, change: int) -> None:
        for name, amount in wanted.items():
            self._column(self._free, name)[row] -= change * amount
            if name not in ALWAYS_THERE:
                self._use(name, change)
        self._column(self._free, requests.PODS)[row] -= change

    def _use(self, resource: str, change: int) -> None:
        """Counts the users of a resource; without any, its columns are all zero and are dropped."""
        users = self._users.get(resource, 0) + change
        if users:
            self._users[resource] = users
        else:
            for table in (self._users, self._free, self._allocatable):
                table.pop(resource, None)

    def _use_volumes(self, pod: PodInfo, row: int, change: int) -> None:
        there = self.with_volumes.setdefault(row, set())
        there.add(pod.uid) if change > 0 else there.discard(pod.uid)
        if not there:
            del self.with_volumes[row]
        for volume in pod.volumes:
            if volume.persistent_volume_claim is not None:
                self._use_claim(f"{pod.pod.namespace}/{volume.persistent_volume_claim.claim_name}", row, change)

    def _use_claim(self, key: str, row: int, change: int) -> None:
        users = self._claim_users.setdefault(key, Counter())
        users[row] += change
        if not users[row]:
            del users[row]
        if not users:
            del self._claim_users[key]

    def claim_in_use(self, key: str) -> bool:
        """Whether a pod uses the claim; as in kube-scheduler, pods on deleted nodes do not count."""
        return any(self._present[row] for row in self._claim_users.get(key, ()))


def _differs(old: Node, new: Node) -> bool:
    """Whether anything changed that scheduling depends on; heartbeats only change conditions."""
    return (
        old.metadata.labels != new.metadata.labels
        or old.spec != new.spec
        or old.status.allocatable != new.status.allocatable
        or old.status.images != new.status.images
        or old.status.declared_features != new.status.declared_features
    )


def _same_room(old: PodInfo, new: PodInfo) -> bool:
    """Whether an update of a pod changes nothing that is counted here."""
    return (
        old.template is new.template
        and old.identity is new.identity
        and old.requests == new.requests
        and old.pod.terminating == new.pod.terminating
    )
