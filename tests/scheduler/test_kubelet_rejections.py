"""Pods that a kubelet refused: what is counted of them, and how little is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from carico.scheduler.kubelet_rejections import FAILED, FailedPod, KubeletRejections
from carico.scheduler.metrics import SchedulerMetrics
from carico.testing import ManualClock
from harness.kube.played import PlayedServer


def failed(name: str, reason: str, scheduler: str = "carico", node: str = "n") -> dict[str, Any]:
    meta = {"name": name, "namespace": "d", "uid": f"uid-{name}", "resourceVersion": "5"}
    meta |= {"labels": {f"l{i}": "x" * 60 for i in range(20)}, "annotations": {"a": "x" * 100_000}}  # type: ignore[dict-item]
    return {
        "metadata": meta,
        "spec": {"nodeName": node, "schedulerName": scheduler, "containers": [{"name": "c"}]},
        "status": {"phase": "Failed", "reason": reason},
    }


def counted(listed: list[dict[str, Any]], added: list[dict[str, Any]]) -> tuple[KubeletRejections, str]:
    async def scenario() -> tuple[KubeletRejections, str]:
        registry = CollectorRegistry()
        server = PlayedServer([listed], [[{"type": "ADDED", "object": obj} for obj in added]])
        metrics = SchedulerMetrics(registry)
        rejections = KubeletRejections(server.client, metrics, ManualClock(), {"carico": 1})
        task = asyncio.create_task(rejections.run())
        await server.received()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return rejections, generate_latest(registry).decode()

    return asyncio.run(scenario())


def series(page: str) -> set[str]:
    name = "carico_scheduler_rejected_pods_total{"
    return {line.removeprefix(name) for line in page.splitlines() if line.startswith(name)}


def test_labels_have_few_values_whatever_people_write() -> None:
    names = [f"scheduler-{i}" for i in range(50)]
    added = [failed(f"p{i}", f"OutOfexample.com/r{i}", name) for i, name in enumerate(names)]
    added += [failed("ours", "OutOfcpu"), failed("too", "NodeAffinity"), failed("other", "NodeAffinity", "theirs")]
    _, page = counted([], added)
    assert series(page) == {
        'reason="OutOfother",scheduler="other"} 50.0',
        'reason="OutOfcpu",scheduler="carico"} 1.0',
        'reason="NodeAffinity",scheduler="carico"} 1.0',
        'reason="NodeAffinity",scheduler="other"} 1.0',
    }


def test_what_failed_before_or_for_other_reasons_or_nowhere_is_not_counted() -> None:
    added = [failed("error", "Error"), failed("evicted", "Evicted"), failed("unbound", "OutOfcpu", node="")]
    _, page = counted([failed("before", "OutOfcpu")], added)
    assert series(page) == set()


def test_of_each_pod_only_names_are_kept() -> None:
    rejections, _ = counted([failed("a", "OutOfcpu")], [failed("b", "Error")])
    kept = rejections.reflector.store
    assert {key: type(obj) for key, obj in kept.items()} == {"d/a": FailedPod, "d/b": FailedPod}
    assert all(len(msgspec.json.encode(obj)) < 300 for obj in kept.values())
    assert FAILED.kind == "FailedPod"
