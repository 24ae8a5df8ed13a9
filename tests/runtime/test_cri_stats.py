"""Statistics of a CRI runtime: what its messages mean, and requests only while they are used."""

# mypy: disable-error-code="comparison-overlap"
# Tuples are compared with those of pytest.approx.

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from carico.clock import SystemClock
from carico.runtime.api import cri_pb2 as cri
from carico.runtime.api.cri_pb2_grpc import RuntimeServiceServicer, add_RuntimeServiceServicer_to_server
from carico.runtime.cri_stats import UID_LABEL, CriStats, by_containers, by_pods

EPOCH = 1_000_000.0  # s between the monotonic clock and the epoch


def value(number: int) -> Any:
    return cri.UInt64Value(value=number)


def cpu(seconds: float, **others: Any) -> Any:
    return cri.CpuUsage(timestamp=int((EPOCH + 7) * 1e9), usage_core_nano_seconds=value(int(seconds * 1e9)), **others)


def memory(bytes_: int, **others: Any) -> Any:
    return cri.MemoryUsage(working_set_bytes=value(bytes_), **others)


def pod(uid: str, *containers: Any, **usage: Any) -> Any:
    attributes = cri.PodSandboxAttributes(metadata=cri.PodSandboxMetadata(uid=uid))
    return cri.PodSandboxStats(
        attributes=attributes, linux=cri.LinuxPodSandboxStats(containers=containers, **usage) if usage else None
    )


def test_a_pod_with_everything() -> None:
    psi = cri.PsiStats(Some=cri.PsiData(Total=250_000_000))
    swapped = cri.ContainerStats(swap=cri.SwapUsage(swap_usage_bytes=value(5)))
    stats = pod("a", swapped, swapped, cpu=cpu(1.5, psi=psi), memory=memory(70, available_bytes=value(30)))
    assert by_pods([stats], EPOCH) == {"a": (pytest.approx(7.0), (1.5, 0.25, 0.0, 70, 10, 100, None))}


def test_a_pod_without_limit_and_pressure_and_one_without_statistics() -> None:
    stats = [pod("a", cpu=cpu(1.5), memory=memory(70)), pod("starting")]
    assert by_pods(stats, EPOCH) == {"a": (pytest.approx(7.0), (1.5, None, 0.0, 70, 0, None, None))}


def test_containers_are_added_up_where_the_runtime_does_not() -> None:
    attributes = cri.ContainerAttributes(labels={UID_LABEL: "a"})
    one = cri.ContainerStats(attributes=attributes, cpu=cpu(1.5), memory=memory(70, available_bytes=value(30)))
    stranger = cri.ContainerStats(cpu=cpu(9.0), memory=memory(9))
    assert by_containers([one, one, stranger], EPOCH)["a"][1] == (3.0, None, 0.0, 140, 0, 200, None)


class Runtime(RuntimeServiceServicer):  # type: ignore[misc]
    def __init__(self, knows_pods: bool) -> None:
        self.knows_pods = knows_pods
        self.asked = 0

    async def ListPodSandboxStats(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        self.asked += 1
        if not self.knows_pods:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
        return cri.ListPodSandboxStatsResponse(stats=[pod("a", cpu=cpu(1.5), memory=memory(70))])

    async def ListContainerStats(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        attributes = cri.ContainerAttributes(labels={UID_LABEL: "a"})
        stats = [cri.ContainerStats(attributes=attributes, cpu=cpu(1.5), memory=memory(70))]
        return cri.ListContainerStatsResponse(stats=stats)


@pytest.mark.parametrize("knows_pods", [True, False])
def test_a_real_server(tmp_path: Path, knows_pods: bool) -> None:
    async def ask() -> None:
        server, runtime = grpc.aio.server(), Runtime(knows_pods)
        add_RuntimeServiceServicer_to_server(runtime, server)
        server.add_insecure_port(f"unix:{tmp_path}/cri.sock")
        await server.start()
        stats = CriStats(lambda: tmp_path / "cri.sock", SystemClock())
        running = asyncio.create_task(stats.run())
        try:
            async with asyncio.timeout(60):
                while (read := stats.read("a", None)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert read[1].usage_seconds == 1.5
            assert stats.read("b", None) is None
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await server.stop(None)

    asyncio.run(ask())
