"""VolumeBinding plugin: bound volumes must be reachable; claims that wait for a consumer must be servable on the node.

After a node is chosen the volumes are only assumed (`reserve`). `pre_bind` then writes the choice to the API server
(a volume's claimRef, or the node that the provisioner must use) and waits until the volume controller has bound
every claim; a pod is never bound before its volumes are. The wait ends at once when it can no longer succeed: the pod,
its node or a claim was deleted, the provisioner gave up or made a volume that the node cannot use, or the volume
controller took the volume back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from carico.clock import Clock
from carico.config import duration
from carico.errors import CaricoError
from carico.kube.storage import PersistentVolumeClaim, StorageClass
from carico.kube.volumes import ApiCaller
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import (
    OK,
    SKIP,
    Cycle,
    Filter,
    PreBind,
    PreFilter,
    Reason,
    Reserve,
    Reuse,
    Status,
    Verdict,
    error,
    unresolvable,
)
from carico.scheduler.framework.in_flight import WaitingPods
from carico.scheduler.plugins.volume import matching
from carico.scheduler.plugins.volume.matching import Match, UnboundClaim
from carico.scheduler.plugins.volume.pod_volumes import (
    bound_volume,
    claim_uses,
    is_own_claim,
    made_for,
    missing,
    reaches,
)
from carico.scheduler.plugins.volume.progress import progress
from carico.scheduler.plugins.volume.writing import changed, write

OUT_OF_REACH = Reason("node(s) had volume node affinity conflict", unresolvable=True)
NOT_SERVED = Reason("node(s) didn't find available persistent volumes to bind", unresolvable=True)
NO_ROOM = Reason("node(s) did not have enough free storage", unresolvable=True)
VANISHED = Reason("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)", unresolvable=True)


@dataclass(frozen=True)
class VolumeBindingArgs:
    """Settings of VolumeBinding."""

    bind_timeout: float = duration(
        600.0, "time to wait for a pod's volumes to be bound; kube-scheduler's bindTimeoutSeconds", least=1
    )


@dataclass(slots=True)
class _Claims:
    """A pod's claims during one cycle."""

    bound: list[PersistentVolumeClaim]
    waiting: list[PersistentVolumeClaim]  # for their first consumer
    match: Match | None = None  # on the chosen node, from `reserve` on


class VolumeBinding(PreFilter, Filter, Reserve, PreBind):
    name = "VolumeBinding"
    reuse = Reuse.NEVER  # claims and volumes change independently of nodes

    def __init__(
        self, client: ApiCaller | None, clock: Clock, waiting: WaitingPods, args: VolumeBindingArgs | None = None
    ) -> None:
        self._client, self._clock, self._waiting = client, clock, waiting
        self.args = VolumeBindingArgs() if args is None else args

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (
            EventInterest("StorageClass", Action.ADD),
            EventInterest("StorageClass", Action.UPDATE, _topologies_changed),
            EventInterest("PersistentVolumeClaim", Action.ADD | Action.UPDATE, is_own_claim),
            EventInterest("PersistentVolume", Action.ADD | Action.UPDATE),
            EventInterest("Node", Action.ADD | Action.NODE_LABEL),
            EventInterest("CSINode", Action.ADD | Action.UPDATE),
            EventInterest("CSIDriver", Action.UPDATE | Action.DELETE),
            EventInterest("CSIStorageCapacity", Action.ADD | Action.UPDATE),
        )

    def pre_filter(self, cycle: Cycle) -> Status:
        uses = claim_uses(cycle.pod)
        if not uses:
            return SKIP
        claims = _Claims([], [])
        immediate = False
        for use in uses:
            claim = cycle.snapshot.store.claims.get(use.key)
            problem = missing(use) if claim is None else _problem(cycle, claim, use.ephemeral)
            if problem:
                return unresolvable(problem)
            assert claim is not None
            if claim.bound:
                claims.bound.append(claim)
            elif _waits(cycle.snapshot, claim):
                claims.waiting.append(claim)
            else:
                immediate = True
        if immediate:
            return unresolvable("pod has unbound immediate PersistentVolumeClaims")
        cycle.state[self.name] = claims
        return OK

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        claims: _Claims = cycle.state[self.name]
        snapshot = cycle.snapshot
        candidates = snapshot.all_rows() if rows is None else rows
        bits = np.zeros(len(candidates), dtype=np.uint8)
        for claim in claims.bound:
            volume = bound_volume(snapshot.store, claim)
            reached = reaches(snapshot, volume, candidates) if volume is not None else None
            if volume is None:
                bits |= np.uint8(8)
            elif reached is not None:
                bits |= (~reached).view(np.uint8)
        if claims.waiting:
            bits |= _unserved(snapshot, claims.waiting, candidates)
        return Verdict(bits, (OUT_OF_REACH, NOT_SERVED, NO_ROOM, VANISHED))

    def reserve(self, cycle: Cycle, node: str) -> Status:
        claims: _Claims | None = cycle.state.get(self.name)
        if claims is None or not claims.waiting:
            return OK
        row = np.array([cycle.snapshot.rows.number[node]], dtype=np.intp)
        claims.match = matching.match(_wishes(cycle.snapshot, claims.waiting, row), 0)
        for obj in changed(claims.match, node):
            cycle.snapshot.store.assume(obj)
        return OK

    def unreserve(self, cycle: Cycle, node: str) -> None:
        claims: _Claims | None = cycle.state.get(self.name)
        if claims is not None and claims.match is not None:
            for obj in changed(claims.match, node):
                cycle.snapshot.store.restore(obj)
            claims.match = None

    async def pre_bind(self, cycle: Cycle, node: str) -> Status:
        claims: _Claims | None = cycle.state.get(self.name)
        if claims is None or claims.match is None:
            return OK
        if self._client is None:
            return error("volumes cannot be bound: this process has no connection to the API server")
        try:
            for obj in changed(claims.match, node):
                await write(self._client, obj)
        except (CaricoError, OSError) as failure:
            return error(f"binding volumes: {failure}")
        return await self._bind_claims(cycle, claims, node)

    async def _bind_claims(self, cycle: Cycle, claims: _Claims, node: str) -> Status:
        """Wait until the volume controller has bound every claim."""
        match, store, in_flight = claims.match, cycle.snapshot.store, self._waiting.get(cycle.pod.uid)
        assert match is not None
        assert in_flight is not None, "only a pod in flight binds its volumes"
        deadline = self._clock.monotonic() + self.args.bind_timeout
        names = [("PersistentVolumeClaim", claim.key) for claim in claims.waiting]
        names += [("PersistentVolume", volume.name) for _, volume in match.static]
        with store.listening(names, in_flight.wake):
            while in_flight.ended is None:
                problem = progress(cycle.snapshot, match, node)
                if problem is not None:
                    return error(f"binding volumes: {problem}") if problem else OK
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return error(f"binding volumes: not bound after {self.args.bind_timeout:g} s")
                await in_flight.news("volumes", left)
            return error(f"binding volumes: {in_flight.ended.why}")


def _problem(cycle: Cycle, claim: PersistentVolumeClaim, ephemeral: bool) -> str:
    name = claim.name
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if ephemeral and not made_for(cycle.pod.pod, claim):
        return f"PVC {claim.key} was not created for pod {cycle.pod.pod.key} (pod is not owner)"
    return ""


def _waits(snapshot: Snapshot, claim: PersistentVolumeClaim) -> bool:
    """Whether the claim is bound only once its pod has a node; the controller binds one that names a volume."""
    storage_class = snapshot.store.storage_classes.get(claim.class_name)
    waits = storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"
    return waits and not claim.spec.volume_name


def _wishes(snapshot: Snapshot, claims: list[PersistentVolumeClaim], rows: RowArray) -> list[UnboundClaim]:
    return [matching.wish(snapshot, claim, rows) for claim in claims]


def _unserved(snapshot: Snapshot, claims: list[PersistentVolumeClaim], rows: RowArray) -> Any:
    bits = np.zeros(len(rows), dtype=np.uint8)
    wishes = _wishes(snapshot, claims, rows)
    for index, alike in matching.patterns(wishes, len(rows)):
        match = matching.match(wishes, index)
        bits[alike] = (0 if match.served else 2) | (0 if match.room else 4)
    return bits


def _topologies_changed(pod: PodInfo, old: StorageClass, new: StorageClass) -> bool:
    return old.allowed_topologies != new.allowed_topologies
