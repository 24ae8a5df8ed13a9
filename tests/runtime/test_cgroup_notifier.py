"""The kubelet creates a pod's cgroup before it calls the runtime: that is a warning of churn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from carico.runtime.auto import NoSource
from carico.runtime.cgroup_notifier import LOOK_AGAIN, CgroupNotifier
from carico.runtime.pods import ANNOUNCED_FOR, PodTable
from carico.settings import RuntimeSettings
from carico.testing import ManualClock
from harness.node.container_pods import eventually


def test_a_pod_that_is_about_to_come_is_churn_and_no_pod(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        table = PodTable(RuntimeSettings())
        source = CgroupNotifier(NoSource(table, clock), tmp_path, clock)
        run = asyncio.create_task(source.run())
        await clock.turn(1)
        (tmp_path / "kubepods" / "burstable").mkdir(parents=True)
        await clock.turn(LOOK_AGAIN)
        assert not table.count(clock.monotonic()).churn
        for pod in ("burstable/podaa", "podbb"):
            (tmp_path / "kubepods" / pod).mkdir()
            await eventually(lambda: table.count(clock.monotonic()).churn, f"churn is seen for {pod}")
            assert table.counted() == frozenset()
            await clock.turn(ANNOUNCED_FOR)
            assert not table.count(clock.monotonic()).churn
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    asyncio.run(scenario())
