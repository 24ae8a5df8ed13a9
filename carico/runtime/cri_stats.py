"""Use of pods from the statistics of a CRI runtime, where their cgroups are not visible.

Polled once a second, outside the sampling tick, and only while `read` is called: the runtime reads the same cgroups for
it, at some hundred times the cost. It does not contain throttling or cpu limits, and PSI only in new versions (CRI of
Kubernetes 1.33 and later).

https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2371-cri-pod-container-stats
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from carico.clock import Clock
from carico.errors import SourceError
from carico.runtime.api import cri_pb2 as cri_pb
from carico.runtime.api.cri_pb2_grpc import RuntimeServiceStub
from carico.runtime.channel import CALL_TIMEOUT, connected, explain
from carico.types import PodCounters

log = logging.getLogger(__name__)

POLL_EVERY = 1.0  # s
TRY_AGAIN = 10.0  # s after a call that failed
IN_USE_FOR = 5.0  # s for which polling continues after a `read`
UID_LABEL = "io.kubernetes.pod.uid"
NANOSECOND = 1e-9

Latest = Mapping[str, tuple[float, PodCounters]]  # pod UID → s, monotonic, and the counters then


class CriStats:
    """`read` returns the result of the last poll; `run` polls indefinitely."""

    name = "cri"

    def __init__(self, socket: Callable[[], Path | None], clock: Clock) -> None:
        self._socket = socket
        self._clock = clock
        self._used_at = -IN_USE_FOR  # s, monotonic
        self._latest: Latest = {}
        self._problem: str | None = None

    def read(self, uid: str, cgroup: str | None) -> tuple[float, PodCounters] | None:  # noqa: ARG002
        self._used_at = self._clock.monotonic()
        return self._latest.get(uid)

    def keep(self, uids: Collection[str]) -> None:
        """Does nothing: each poll replaces everything."""

    async def run(self) -> None:
        while True:
            socket = self._socket()
            if socket is None or not self._is_in_use():
                await self._clock.sleep(POLL_EVERY)
                continue
            try:
                async with connected(socket) as channel:
                    await self._poll(RuntimeServiceStub(channel))
            except grpc.aio.AioRpcError as error:
                self._on_failure(explain(error, socket))
            except SourceError as error:
                self._on_failure(str(error))
            await self._clock.sleep(TRY_AGAIN)

    async def _poll(self, runtime: Any) -> None:
        """Polls until `read` is no longer called."""
        while self._is_in_use():
            since_epoch = self._clock.wall() - self._clock.monotonic()
            self._latest = await _all_pods(runtime, since_epoch)
            self._problem = None
            await self._clock.sleep(POLL_EVERY)
        self._latest = {}

    def _is_in_use(self) -> bool:
        return self._clock.monotonic() - self._used_at < IN_USE_FOR

    def _on_failure(self, problem: str) -> None:
        self._latest = {}
        if problem != self._problem:
            log.warning("the runtime gives no statistics of pods: %s; trying again", problem)
        self._problem = problem


async def _all_pods(runtime: Any, since_epoch: float) -> Latest:
    try:
        answer = await runtime.ListPodSandboxStats(cri_pb.ListPodSandboxStatsRequest(), timeout=CALL_TIMEOUT)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        answer = await runtime.ListContainerStats(cri_pb.ListContainerStatsRequest(), timeout=CALL_TIMEOUT)
        return by_containers(answer.stats, since_epoch)
    return by_pods(answer.stats, since_epoch)


def by_pods(stats: Iterable[Any], since_epoch: float) -> Latest:
    found: dict[str, tuple[float, PodCounters]] = {}
    for pod in stats:
        if pod.linux.HasField("cpu"):
            swap = sum(container.swap.swap_usage_bytes.value for container in pod.linux.containers)
            counters = _counters(pod.linux.cpu, pod.linux.memory, swap)
            found[pod.attributes.metadata.uid] = (pod.linux.cpu.timestamp * NANOSECOND - since_epoch, counters)
    return found


def by_containers(stats: Iterable[Any], since_epoch: float) -> Latest:
    """For runtimes without sums per pod; a container that ends decreases the sum, which `rates` detects."""
    found: dict[str, tuple[float, PodCounters]] = {}
    for container in stats:
        uid = container.attributes.labels.get(UID_LABEL)
        if not uid or not container.HasField("cpu"):
            continue
        one = _counters(container.cpu, container.memory, container.swap.swap_usage_bytes.value)
        at = container.cpu.timestamp * NANOSECOND - since_epoch
        before = found.get(uid)
        found[uid] = (at, one) if before is None else (max(at, before[0]), _sum(before[1], one))
    return found


def _counters(cpu: Any, memory: Any, swap: float) -> PodCounters:
    working_set = memory.working_set_bytes.value
    # A pod without a limit has no such field, or 0.
    left = memory.available_bytes.value if memory.HasField("available_bytes") else 0
    some = cpu.psi.Some.Total * NANOSECOND if cpu.HasField("psi") else None
    usage = cpu.usage_core_nano_seconds.value * NANOSECOND
    return PodCounters(usage, some, 0.0, working_set, swap, working_set + left if left else None, None)


def _sum(one: PodCounters, other: PodCounters) -> PodCounters:
    """Of two containers. Their PSI times overlap by an unknown part: the larger one is a lower bound of both."""
    some = None
    if one.some_seconds is not None and other.some_seconds is not None:
        some = max(one.some_seconds, other.some_seconds)
    limit = None
    if one.memory_limit is not None and other.memory_limit is not None:
        limit = one.memory_limit + other.memory_limit
    return PodCounters(
        one.usage_seconds + other.usage_seconds,
        some,
        0.0,
        one.memory_working_set + other.memory_working_set,
        one.swap + other.swap,
        limit,
        None,
    )
