"""What pods in flight in another scheduler will take: charged to a node before any watch can know it.

A charge is a promise in the ledger that nobody here keeps: it runs out unless the watch brings the binding before,
which makes it an ordinary entry of the ledger, on whatever node the pod was really bound to. Only while a binding is
under way, or its outcome unknown, it stands without an end.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from carico.kube.objects import Pod
from carico.scheduler.class_costs import ClassTable
from carico.scheduler.ledger import Ledger
from carico.scheduler.template import PodInfo
from carico.scheduler.units import counts

GUESSED = 5.0  # s that a charge stands on a node which was only the likely one
UNTIL_KNOWN = math.inf  # s that it stands while its binding is under way
BOUND = 300.0  # s that it stands when the API server took the binding: no watch lags longer and lives


class Charges:
    def __init__(self, ledger: Ledger, classes: ClassTable, now: Callable[[], float]) -> None:
        self._ledger, self._classes, self._now = ledger, classes, now
        self._until: dict[str, float] = {}  # UID to when the charge runs out, s, monotonic

    def __len__(self) -> int:
        return len(self._until)

    def put(self, pod: Pod, node: str, seconds: float = GUESSED) -> None:
        """Charges the pod to this node, and to no other any more."""
        if counts(pod):
            entry = self._ledger.entry(pod.uid)
            if entry is None or not entry.bound:
                self._ledger.reserve(pod.uid, node, self._classes.claim(PodInfo(pod)), self._now())
            self._until[pod.uid] = self._now() + seconds

    def withdraw(self, uid: str) -> None:
        """The pod is looked at anew: what it was charged before must not stand in its own way."""
        if self._until.pop(uid, None) is not None:
            self._ledger.release(uid)

    def let_go(self) -> None:
        """Charges that ran out; a pod that is bound stays in the ledger as what it is."""
        now = self._now()
        for uid in [uid for uid, until in self._until.items() if until <= now]:
            self.withdraw(uid)
