"""Passes the NodeCapacity objects that are due to the writer.

Where the cluster has no such kind of objects, or the role does not allow to write them, this is logged once and tried
again every few minutes.
"""

from __future__ import annotations

import logging
import math
from functools import partial

import numpy as np

from carico.clock import Clock
from carico.errors import FencedError
from carico.kube.binding import rfc3339
from carico.kube.client import Client, Fence
from carico.kube.node_capacities import Figures, NotServed, Outcome, Owner, write
from carico.kube.objects import Node
from carico.kube.writer import ApiWriter
from carico.kube.writes import Urgency, Write
from carico.scheduler.cache.accounts import Account
from carico.scheduler.cache.charge import NUMBER
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.rows import Mask
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.node_capacities.due import COLUMNS, NOT_SERVED_PAUSE, DueWrites, NodeKey
from carico.types import Matrix, Mode

log = logging.getLogger(__name__)

WARN_EVERY = 300.0  # s between two log lines about failed writes
CPU, MEMORY = NUMBER["cpu"], NUMBER["memory"]


class CapacityPublisher:
    def __init__(self, snapshot: Snapshot, ledger: Ledger, client: Client, writer: ApiWriter, clock: Clock) -> None:
        self._snapshot, self._ledger = snapshot, ledger
        self._client, self._writer, self._clock = client, writer, clock
        self.due = DueWrites()
        self._mark = snapshot.node_changes.mark
        self._read_all = True
        self._served = True
        self._warned_at = -math.inf

    def tick(self) -> None:
        """Called by the leader, every second."""
        now = self._clock.monotonic()
        self._follow_nodes()
        figures = self._figures(now)
        for key in self.due.choose(figures, self._wanted(figures, now), self._snapshot.node_count, now):
            self._put(key)

    def _follow_nodes(self) -> None:
        changed = None if self._read_all else self._snapshot.node_changes.since(self._mark)
        rows = range(len(self._snapshot)) if changed is None else np.unique(changed).tolist()
        self._mark, self._read_all = self._snapshot.node_changes.mark, False
        for row in rows:
            node = self._snapshot.nodes[row]
            self.due.own(row, node.uid if node is not None else "")

    def _figures(self, now: float) -> Matrix:
        ledger, length = self._ledger, len(self._snapshot)
        table: Matrix = np.zeros((length, COLUMNS))
        fresh = ledger.fresh(now)[:length]
        columns = (ledger.pod_capacity, ledger.reserved, ledger.counted_pods, ledger.churn)
        for number, column in enumerate(columns):
            table[:, number] = column[:length]
        table[:, COLUMNS - 1] = ~fresh
        return table

    def _wanted(self, figures: Matrix, now: float) -> Mask:
        """Not the nodes whose agents may still be connecting to this new leader."""
        present = self._snapshot.present
        if not self._ledger.is_expected(now):
            return present
        awaited: Mask = present & (figures[:, COLUMNS - 1] == 0)
        return awaited

    # --- writing ---

    def _put(self, key: NodeKey) -> None:
        """Failed attempts are repeated by `due` alone, which knows the rate of all of them: no patience here."""
        done: list[Outcome] = []
        send = partial(self._send, key, done)
        on_end = partial(self._on_end, key, done)
        self._writer.put(Write(("capacity", key.uid), Urgency.NODE_CAPACITY, send, on_end=on_end, patience=0.0))

    async def _send(self, key: NodeKey, done: list[Outcome], fence: Fence) -> None:
        node = self._snapshot.nodes[key.row] if key.row < len(self._snapshot) else None
        if node is None or node.uid != key.uid:
            done.append(Outcome(0, owned=True))
            return
        done.append(await write(self._client, Owner(node.name, node.uid), self._known(node), fence))

    def _known(self, node: Node) -> Figures:
        """The newest figures."""
        now, account = self._clock.monotonic(), self._ledger.account(node.name)
        written = _seconds(self._clock.wall())
        if account is None or account.report is None:
            return Figures(None, None, None, None, None, None, True, None, written)
        row, ledger = account.row, self._ledger
        cores, memory = ledger.room[row, (CPU, MEMORY)].tolist() if ledger.has_room[row] else (math.inf, math.inf)
        return Figures(
            float(ledger.pod_capacity[row]), float(ledger.reserved[row]), int(ledger.counted_pods[row]),
            _finite(cores), _finite(memory), account.report.estimate.mode is Mode.CHURN,
            not ledger.is_fresh(row, now), self._sampled(account, now), written,
        )  # fmt: skip

    def _sampled(self, account: Account, now: float) -> str:
        """By this process's clock."""
        return _seconds(self._clock.wall() - (now - account.sampled))

    def _on_end(self, key: NodeKey, done: list[Outcome], error: Exception | None) -> None:
        now = self._clock.monotonic()
        if error is None and done:
            self._served = True
            self.due.written(key, done[0].requests, done[0].owned, now)
            return
        self.due.failed(key, now, served=not isinstance(error, NotServed))
        if isinstance(error, NotServed):
            self._note_not_served(error)
        elif not isinstance(error, FencedError) and now - self._warned_at >= WARN_EVERY:
            self._warned_at = now
            log.warning("a NodeCapacity object was not written: %s", error)

    def _note_not_served(self, error: NotServed) -> None:
        if self._served:
            log.info(
                "NodeCapacity objects, which `kubectl get ncap` shows, are not written: %s. "
                "Apply scheduler/crd-nodecapacities.yaml and the ClusterRole, or set node_capacities = false; "
                "this is tried again every %.0f s", error, NOT_SERVED_PAUSE,
            )  # fmt: skip
        self._served = False


def _finite(amount: float) -> float | None:
    return amount if math.isfinite(amount) else None


def _seconds(wall: float) -> str:
    return rfc3339(wall)[:19] + "Z"
