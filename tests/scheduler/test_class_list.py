"""`carico classes`: what it prints of a scheduler's answer, and the metrics about classes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from carico import cli
from carico.scheduler.http import remote, routes
from carico.scheduler.http.class_view import ClassRow
from carico.scheduler.process import Scheduler
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_cost, make_pod, make_report
from harness.kube.network import Asked, client_of

MIB = 2.0**20
WEB = ClassRow(
    "team-a/web", "team-a", 212, 198.0, 20, 2, "aggregator", 4.0,
    {"cpu": 0.34, "memory": 430 * MIB}, {"cpu": 0.31, "memory": 420 * MIB}, {"cpu": 0.02, "memory": 12 * MIB},
    {"cpu": 1.0, "memory": 512 * MIB}, {"cpu": 0.35, "memory": 440 * MIB},
)  # fmt: skip
NEW = ClassRow("team-b/new", "team-b", 1, requests={"cpu": 0.1, "memory": 0.0})


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A scheduler that answers with two classes; the paths that were requested."""
    asked: list[str] = []

    class Client:
        async def fetch(self, path: str) -> bytes:
            asked.append(path)
            return msgspec.json.encode({"classes": [NEW, WEB]})

    @asynccontextmanager
    async def reach(_: object) -> AsyncIterator[remote.Pages]:
        yield remote.Pages(cast(Any, Client()))

    monkeypatch.setattr(remote, "reach", reach)
    return asked


def test_the_class_whose_requests_are_furthest_from_the_truth_comes_first(
    served: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["classes"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["CLASS", "PODS", "MEASURED", "CPU", "MEMORY", "REQUESTS", "SUGGESTED"]
    assert first.split("  ")[0] == "team-a/web"
    assert first.endswith("0.31  420 MiB  1, 512Mi    350m, 440Mi")
    assert second.split()[:3] == ["team-b/new", "1", "none"]
    assert served == ["/debug/classes"]


@pytest.mark.usefixtures("served")
def test_other_forms_and_one_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["classes", "-n", "team-a", "-o", "json"])
    found = json.loads(capsys.readouterr().out)["classes"]
    assert [row["family"] for row in found] == ["team-a/web"]
    assert found[0]["suggested"] == {"cpu": 0.35, "memory": 440 * MIB}
    cli.main(["classes", "--sort", "name", "-o", "name"])
    assert capsys.readouterr().out == "team-a/web\nteam-b/new\n"
    cli.main(["classes", "-o", "wide"])
    assert "0.34, 430 MiB" in capsys.readouterr().out


def test_metrics_name_the_hundred_most_expensive_classes_only() -> None:
    clock = ManualClock(now=100.0)
    settings = SchedulerSettings(leader_elect=False, plaintext=True)
    scheduler = Scheduler(settings, clock, client_of(_nothing))
    cluster = scheduler.parts.cluster
    costs = [make_cost(f"default/c{number}", 0.1 + number, 1e9) for number in range(150)]
    cluster.aggregated({cost.key: cost for cost in costs}, ("cpu", "memory"))
    cluster.apply_report(make_report("a", 5.0, room=(4.0, 8e9), full=(8.0, 16e9)))
    for number in range(150):
        cluster.pod_changed(None, make_pod(f"p{number}", labels={"app": f"c{number}"}, node="a"))
    families = {family.name: family for family in routes._present(scheduler)}
    shown = {sample.labels["family"] for sample in families["carico_scheduler_class_cost_cpu_cores"].samples}
    assert len(shown) == 100
    assert {"default/c149", "default/c50"} <= shown
    assert families["carico_scheduler_classes"].samples[0].value == 150


async def _nothing(asked: Asked) -> bytes:
    raise AssertionError(f"{asked} was sent")
