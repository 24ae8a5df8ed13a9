"""Charges for pods in flight in another scheduler: reserved on a node before a watch event can report the binding.

A charge is a reservation in the ledger that expires, unless the watch event of the binding comes first. That makes it
an ordinary entry of the ledger, on the node that the pod was really bound to. It has no expiry only while a binding is
in progress or its outcome is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from carico.kube.objects import Pod
from carico.scheduler.cache.class_costs import ClassCostTable
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cache.units import counts

GUESSED = 5.0  # s: lifetime of a charge on a node that was only predicted
UNTIL_KNOWN = math.inf  # s: lifetime while the binding is in progress
BOUND = 300.0  # s: lifetime after the API server accepted the binding; a working watch does not lag longer


class ExtenderReservations:
    def __init__(self, ledger: Ledger, classes: ClassCostTable, now: Callable[[], float]) -> None:
        self._ledger, self._classes, self._now = ledger, classes, now
        self._until: dict[str, float] = {}  # UID to when the charge expires, s, monotonic

    def __len__(self) -> int:
        return len(self._until)

    def put(self, pod: Pod, node: str, seconds: float = GUESSED) -> None:
        """Charges the pod to this node, and removes its charge from any other."""
        if counts(pod):
            entry = self._ledger.entry(pod.uid)
            if entry is None or not entry.bound:
                self._ledger.reserve(pod.uid, node, self._classes.claim(PodInfo(pod)), self._now())
            self._until[pod.uid] = self._now() + seconds

    def withdraw(self, uid: str) -> None:
        """Removes the pod's charge before it is filtered again: its own charge must not count against it."""
        if self._until.pop(uid, None) is not None:
            self._ledger.release(uid)

    def let_go(self) -> None:
        """Removes expired charges; a pod that is bound stays in the ledger as an ordinary entry."""
        now = self._now()
        for uid in [uid for uid, until in self._until.items() if until <= now]:
            self.withdraw(uid)
