"""The simulator: against arithmetic where the result is known, the same twice, and open to new parts in one file."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from carico.scheduler.cache.rows import RowArray
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import Cycle, Score
from carico.sim import controllers, faults, patterns, policies
from carico.sim.controllers.contract import ClusterForControllers
from carico.sim.figures import figures
from carico.sim.kubelet import KILLED, SUCCEEDED
from carico.sim.policies.contract import PolicyView, profile
from carico.sim.recorder import Recorder
from carico.sim.scenario import Fault, ScenarioWorkload, parse
from carico.sim.scheduler import PolicyPlugins
from carico.sim.simulation import Simulation
from carico.sim.workload import WorkPhase
from carico.types import Vector

CARICO = str(Path(sys.executable).with_name("carico"))


def simulation(seed: int = 1, scheduler: Any = "kube", **parts: Any) -> Simulation:
    plain = {"nodes": [{"cores": 4, "memory": "8Gi", "base": {"cpu": 0, "memory": 0}, "contention": 0}]}
    scenario = parse(yaml.safe_dump(plain | parts | {"schedulers": [scheduler]}))
    return Simulation(scenario, scenario.entries[0], seed)


def work(cpu: str = "8s", pods: int = 1, name: str = "work", **pod: Any) -> dict[str, Any]:
    phase = {"cpu": cpu, "memory": pod.pop("memory", "10Mi"), "threads": pod.pop("threads", 1)}
    return {"name": name, "pods": pods, "pod": {"phases": [phase], "spread": 0} | pod}


def ended(recorder: Recorder) -> list[float]:
    """Run times of the pods that succeeded, s."""
    return [pod.ended - pod.running for pod in recorder.pods.values() if pod.outcome == SUCCEEDED]


# Against arithmetic


@pytest.mark.parametrize(("pods", "seconds"), [(1, 8.0), (4, 8.0), (8, 16.0), (16, 32.0)])
def test_cores_are_shared_between_pods_and_no_work_is_lost(pods: int, seconds: float) -> None:
    times = ended(simulation(workloads=[work(pods=pods)]).run())
    assert len(times) == pods
    # The kernel's own work takes 3 %; pods start within half a second, and their end is seen 1.7 s after their start.
    assert all(seconds * 0.97 <= time <= seconds * 1.05 + 2.5 for time in times)


def test_a_pod_of_two_threads_needs_half_the_time() -> None:
    (one,) = ended(simulation(workloads=[work("20s")]).run())
    (two,) = ended(simulation(workloads=[work("20s", threads=2)]).run())
    assert one - two == pytest.approx(10.0, abs=0.1)


def test_a_cpu_limit_makes_a_pod_slower() -> None:
    (free,) = ended(simulation(workloads=[work("8s", threads=2)]).run())
    (limited,) = ended(simulation(workloads=[work("8s", threads=2, limits={"cpu": "500m"})]).run())
    assert limited - free == pytest.approx(16.0 - 4.0, abs=0.1)


def test_contention_costs_work() -> None:
    node = {"cores": 4, "memory": "8Gi", "base": {"cpu": 0, "memory": 0}}
    free, crowded = (
        max(ended(simulation(nodes=[node | {"contention": c}], workloads=[work(pods=32)]).run())) for c in (0, "20%")
    )
    assert 1.1 < crowded / free < 1.25  # 20 % of the work is lost when very many threads wait, a little less with 8


def test_memory_beyond_the_machine_kills_the_pod_with_most_of_it() -> None:
    small, large = work("60s", pods=2, name="small", memory="1Gi"), work("60s", name="large", memory="7Gi")
    recorder = simulation(workloads=[small, large | {"retries": 0, "at": 10}]).run()
    outcomes = {pod.uid: pod.outcome for pod in recorder.pods.values()}
    assert outcomes == {"small-0": SUCCEEDED, "small-1": SUCCEEDED, "large-0": KILLED}
    assert figures(recorder)["oom_kills"] == 1


def test_a_memory_limit_kills_a_pod_alone_and_the_job_tries_again() -> None:
    pod = work("5s", memory="200Mi", limits={"memory": "100Mi"})
    recorder = simulation(workloads=[pod | {"retries": 2}]).run()
    assert [one.outcome for one in recorder.pods.values()] == [KILLED] * 3


def test_requests_limit_the_pods_of_a_node() -> None:
    recorder = simulation(workloads=[work(pods=8, requests={"cpu": "2"})]).run()
    assert recorder.column("pods").max() == 2
    assert len(ended(recorder)) == 8


def test_counted_resources_and_selectors_are_honoured() -> None:
    nodes = [
        {"name": "plain", "cores": 8, "memory": "8Gi"},
        {"name": "gpu", "cores": 8, "memory": "8Gi", "labels": {"disk": "ssd"}, "extended": {"example.com/gpu": 1}},
    ]
    pod = work(pods=3, requests={"extended": {"example.com/gpu": 1}}, node_selector={"disk": "ssd"})
    recorder = simulation(nodes=nodes, workloads=[pod]).run()
    assert {one.node for one in recorder.pods.values()} == {"gpu-0"}
    assert recorder.column("pods").max() == 1


def test_right_requests_are_the_95th_percentile_of_usage() -> None:
    phases = [{"lasts": "90s", "threads": 1, "memory": "100Mi"}, {"lasts": "10s", "threads": 3, "memory": "300Mi"}]
    pod = {"name": "web", "pod": {"phases": phases, "spread": 0}}
    built = simulation(workloads=[pod], scheduler={"policy": "kube", "requests": "right"})
    _, made = built._factories["web"].make()
    assert made.spec.containers[0].resources.requests == {"cpu": "3000m", "memory": str(300 * 2**20)}


# Carico inside it

VALIDATED = {"policy": "carico", "settings": {"validate": True}}  # the ledger's sums are checked after each step


def test_carico_places_by_measured_cost_and_overloads_no_node() -> None:
    """Without requests, although each pod has four threads."""
    nodes = [{"count": 3, "cores": 8, "memory": "16Gi"}]
    job = work("60s", pods=30, threads=4, memory="200Mi")
    built = simulation(nodes=nodes, workloads=[job], scheduler=VALIDATED, seconds="10m")
    recorder = built.run()
    assert len(ended(recorder)) == 30
    assert recorder.column("threads").max() <= 2.0 * 1.05  # full is two busy threads per core
    blind = simulation(nodes=nodes, workloads=[job], scheduler="kube", seconds="10m").run()
    assert blind.column("threads").max() > 3.0


FAULTS = [
    {"kind": "agent-silent", "at": 10, "lasts": 15, "share": "50%"},
    {"kind": "node-gone", "at": 20, "lasts": 20, "nodes": ["node-0"]},
    {"kind": "scheduler-paused", "at": 30, "lasts": 5},
    {"kind": "aggregator-away", "at": 15, "lasts": 30},
]


@pytest.mark.parametrize("scheduler", ["carico", "kube", "koordinator", "pronto"])
def test_after_every_fault_all_pods_end(scheduler: str) -> None:
    job = work("10s", pods=40, requests={"cpu": "200m"})
    built = simulation(
        nodes=[{"count": 3, "cores": 4, "memory": "8Gi"}], workloads=[job], faults=FAULTS, scheduler=scheduler,
        seconds="15m",
    )  # fmt: skip
    recorder = built.run()
    assert len(ended(recorder)) == 40
    assert built.scheduler.waiting == 0
    assert figures(recorder)["unfinished"] == 0


# Controllers


def test_an_autoscaler_follows_the_load() -> None:
    busy = {"phases": [{"lasts": "10m", "threads": 1, "memory": "10Mi"}], "requests": {"cpu": "500m"}, "spread": 0}
    scaled = {
        "name": "web",
        "controller": "deployment",
        "pods": 1,
        "pod": busy,
        "autoscale": {"most": 5, "target": "50%"},
    }
    recorder = simulation(nodes=[{"cores": 16, "memory": "8Gi"}], workloads=[scaled], seconds=120).run()
    assert recorder.column("pods").sum(axis=1).tolist()[-1] == 5


def test_a_deployment_scales_and_replaces_pods() -> None:
    pod = {"phases": [{"lasts": "20s", "threads": 0.1, "memory": "10Mi"}]}
    scale = [{"at": 30, "replicas": 6}, {"at": 60, "replicas": 1}]
    web = {"name": "web", "controller": "deployment", "pods": 3, "pod": pod, "scale": scale}
    recorder = simulation(workloads=[web], seconds=90).run()
    running = dict(zip(recorder.times, recorder.column("pods").sum(axis=1).tolist(), strict=True))
    assert running[20.0] == 3  # the warm-up is 5 s
    assert max(running[at] for at in (45.0, 48.0, 51.0)) == 6
    assert running[80.0] == 1


def test_arrivals_come_at_their_rate() -> None:
    arriving = work("1s", pods=200) | {"controller": "arrivals", "per_second": 5}
    recorder = simulation(workloads=[arriving]).run()
    created = [pod.created for pod in recorder.pods.values()]
    assert len(created) == 200
    assert np.mean(np.diff(created)) == pytest.approx(0.2, rel=0.25)


# The same twice

REPEATED = """
name: repeated
nodes: [{count: 3, cores: 4, memory: 8Gi}]
workloads:
  - {name: pi, pods: 25, pod: {pattern: pi, requests: {cpu: 100m}}}
  - {name: train, pods: 3, pod: {pattern: sklearn, requests: {cpu: 100m}, priority: 10}}
  - {name: web, controller: deployment, pods: 3, pod: {pattern: server, requests: {cpu: 100m}}}
faults: [{kind: agent-silent, at: 10, lasts: 5, share: 50%}, {kind: node-gone, at: 12, lasts: 9, share: 30%}]
seconds: 40
schedulers: [carico, oracle, trimaran]
"""


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    """Whatever order Python's sets have, and with any number of processes."""
    (tmp_path / "s.yaml").write_text(REPEATED)
    written = []
    for number, jobs in enumerate(("1", "2")):
        out = tmp_path / str(number)
        command = [
            CARICO,
            "simulate",
            "s.yaml",
            "--out",
            str(out),
            "--jobs",
            jobs,
            "--seed",
            "7",
        ]
        environment = os.environ | {"PYTHONHASHSEED": str(number)}
        shown = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=300)
        written.append((shown.stdout, {file.name: file.read_bytes() for file in sorted(out.iterdir())}))
    assert len(written[0][1]) == 6
    assert written[0] == written[1]


def test_another_seed_is_another_run() -> None:
    one, other = (sum(ended(simulation(seed, workloads=[work(pods=5, spread="20%")]).run())) for seed in (1, 2))
    assert one != other


# One file each adds a part


class ByName(Score):
    """The node with the lowest number."""

    name = "ByName"
    interests: tuple[EventInterest, ...] = ()

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:  # noqa: ARG002
        return 100.0 / (1.0 + np.asarray(rows, dtype=np.float64))


def by_name(_view: PolicyView, _args: Mapping[str, Any]) -> PolicyPlugins:
    return PolicyPlugins(profile("ByName"), {"ByName": lambda _: ByName()})


def test_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policies.REGISTRY, "by-name", by_name)
    nodes = [{"count": 3, "cores": 4, "memory": "8Gi"}]
    recorder = simulation(nodes=nodes, workloads=[work(pods=4)], scheduler="by-name").run()
    assert {pod.node for pod in recorder.pods.values()} == {"node-0"}


def test_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: np.random.Generator) -> tuple[WorkPhase, ...]:
        return (WorkPhase(3.0, 0.0, 1e6),)

    monkeypatch.setitem(patterns.REGISTRY, "sleep", sleep)
    (seconds,) = ended(simulation(workloads=[{"name": "nap", "pod": {"pattern": "sleep"}}]).run())
    assert seconds == pytest.approx(3.0 + 1.9 - 0.18, abs=0.01)  # the delays with which the API server sees both


class OneAfterTheOther:
    """A controller: the next pod is created when the last one has ended."""

    def __init__(self, cluster: ClusterForControllers, workload: ScenarioWorkload, _: np.random.Generator) -> None:
        self._cluster, self._workload, self._left = cluster, workload, workload.pods

    @property
    def done(self) -> bool:
        return self._left == 0

    def start(self) -> None:
        self._cluster.create(self._workload, self._ended)

    def _ended(self, _uid: str, _outcome: str) -> None:
        self._left -= 1
        if self._left:
            self.start()


def test_a_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(controllers.REGISTRY, "one-by-one", OneAfterTheOther)
    recorder = simulation(workloads=[work("2s", pods=3) | {"controller": "one-by-one"}]).run()
    assert len(ended(recorder)) == 3
    assert recorder.column("pods").max() == 1


def test_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove_all(cluster: faults.ClusterForFaults, _: Fault, nodes: list[str]) -> None:
        for node in nodes:
            cluster.remove_node(node)

    monkeypatch.setitem(faults.REGISTRY, "all-gone", remove_all)
    gone = [{"kind": "all-gone", "at": 0}]
    recorder = simulation(workloads=[work()], faults=gone, seconds=30).run()
    assert all(math.isnan(pod.bound) for pod in recorder.pods.values() if pod.outcome == "")
    assert ended(recorder) == []


def test_files_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from carico import cli

    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"nodes": [{"cores": 4, "memory": "8Gi"}], "workloads": [work()]}))
    png = tmp_path / "p.png"
    arguments = ["simulate", str(tmp_path / "s.yaml"), "--out", str(tmp_path), "--png", str(png), "--seeds", "2"]
    assert cli.main([*arguments, "--jobs", "1"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("SCHEDULER  ")
    assert " ±" in shown[1]
    assert png.read_bytes().startswith(b"\x89PNG")
    pods = (tmp_path / "pods-carico-1.csv").read_text().splitlines()
    assert pods[0].startswith("uid,workload,ideal,ends,created,bound")
    assert len(pods) == 2
    assert cli.main([*arguments, "-o", "json", "--jobs", "1"]) == 0
    assert '"jct"' in capsys.readouterr().out
