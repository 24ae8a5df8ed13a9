"""The node that is this machine: pods as processes, seen through the API server."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.embedded.node_place import NODE, Place, play, state, until

Scenario = Callable[[Place], Awaitable[None]]

TERMINATES = "trap 'echo bye; exit 0' TERM; echo ready; while true; do sleep 0.05; done"


def _backs_off(pod: dict[str, Any]) -> bool:
    waiting = state(pod).get("waiting", {}) if "containerStatuses" in pod["status"] else {}
    return waiting.get("reason") == "CrashLoopBackOff"


def test_the_node_describes_this_machine(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        found = await place.call("GET", f"/api/v1/nodes/{NODE}")
        status = found["status"]
        assert float(status["capacity"]["cpu"].removesuffix("m")) <= (psutil.cpu_count() or 0) * 1000
        memory = int(status["capacity"]["memory"].removesuffix("Ki")) * 1024
        assert 0 < memory <= psutil.virtual_memory().total
        conditions = {one["type"]: one["status"] for one in status["conditions"]}
        assert conditions == {"Ready": "True"} | dict.fromkeys(
            ("MemoryPressure", "DiskPressure", "PIDPressure"), "False"
        )
        assert status["nodeInfo"]["kernelVersion"] == os.uname().release
        lease = await place.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}")
        assert lease["spec"]["holderIdentity"] == NODE

    play(scenario, tmp_path)


def test_a_pod_runs_and_succeeds(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        go = tmp_path / "go"  # it may not end before it was seen to run
        await place.pod("p", "sh", "-c", f"echo hello; until [ -e {go} ]; do sleep 0.05; done; sleep 0.3")
        running = await place.until_phase("p", "Running")
        go.touch()
        assert "running" in state(running)
        conditions = {one["type"]: one["status"] for one in running["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        done = await place.until_phase("p", "Succeeded")
        end = state(done)["terminated"]
        assert (end["exitCode"], end["reason"]) == (0, "Completed")
        began, finished = (datetime.fromisoformat(end[when]) for when in ("startedAt", "finishedAt"))
        assert (finished - began).total_seconds() >= 0.3
        assert place.log(done) == "hello\n"

    play(scenario, tmp_path)


@pytest.mark.parametrize(
    ("script", "code", "reason"), [("exit 3", 3, "Error"), ("kill -9 $$$$", 137, "Error"), ("kill $$$$", 143, "Error")]
)
def test_a_failed_pod_has_the_exit_code_and_reason_of_kubernetes(
    tmp_path: Path, script: str, code: int, reason: str
) -> None:
    async def scenario(place: Place) -> None:
        await place.pod("p", "sh", "-c", script)
        end = state(await place.until_phase("p", "Failed"))["terminated"]
        assert (end["exitCode"], end["reason"]) == (code, reason)

    play(scenario, tmp_path)


@pytest.mark.needs("root", "cgroup-v1")
def test_a_pod_over_its_memory_limit_is_oom_killed(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        greedy = "x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"
        limits = {"resources": {"limits": {"memory": "50Mi"}}}
        await place.pod("p", "python3", "-S", "-c", greedy, container=limits)
        end = state(await place.until_phase("p", "Failed"))["terminated"]
        assert (end["exitCode"], end["reason"]) == (137, "OOMKilled")

    play(scenario, tmp_path)


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"command": ["no-such-program"]}, "no-such-program: No such file or directory"),
        ({"command": []}, "has no command; images are not used here"),
        ({"command": ["true"], "workingDir": "/no/such"}, "/no/such: No such file"),
        ({"command": ["true"], "envFrom": [{"configMapRef": {"name": "c"}}]}, "envFrom is not supported here"),
    ],
)
def test_what_cannot_be_started_says_why(tmp_path: Path, container: Any, message: str) -> None:
    async def scenario(place: Place) -> None:
        await place.pod("p", container=container)
        end = state(await place.until_phase("p", "Failed"))["terminated"]
        assert (end["exitCode"], end["reason"]) == (128, "StartError")
        assert message in end["message"]

    play(scenario, tmp_path)


def test_environment_arguments_and_folder(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        container = {
            "command": ["sh", "-c", 'echo "$NAME|$GREETING|$(pwd)|$0"'],
            "args": ["$(WHO)"],
            "workingDir": str(tmp_path),
            "env": [
                {"name": "WHO", "value": "you"},
                {"name": "GREETING", "value": "hello $(WHO)"},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
        }
        await place.pod("p", container=container)
        assert place.log(await place.until_phase("p", "Succeeded")) == f"p|hello you|{tmp_path}|you\n"

    play(scenario, tmp_path)


def test_several_containers_and_init_containers(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        out = tmp_path / "order"
        script = f"echo $0 >> {out}"
        inits = [{"name": n, "image": "none", "command": ["sh", "-c", script, n]} for n in ("one", "two")]
        both = [
            {"name": "main", "image": "none", "command": ["sh", "-c", script, "main"]},
            {"name": "side", "image": "none", "command": ["sh", "-c", "sleep 0.3; exit 5"]},
        ]
        await place.pod("p", initContainers=inits, containers=both)
        failed = await place.until_phase("p", "Failed")
        assert out.read_text().split() == ["one", "two", "main"]
        assert state(failed)["terminated"]["exitCode"] == 0
        assert state(failed, "side")["terminated"]["exitCode"] == 5

    play(scenario, tmp_path)


def test_restart_on_failure_with_back_off(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        count = tmp_path / "count"
        script = f"echo >> {count}; [ $(wc -l < {count}) -ge 2 ]"
        await place.pod("mends", "sh", "-c", script, restartPolicy="OnFailure")
        done = await place.until_phase("mends", "Succeeded")
        assert done["status"]["containerStatuses"][0]["restartCount"] == 1
        await place.pod("never-mends", "false", restartPolicy="Always")
        waiting = await place.until("never-mends", _backs_off)
        assert waiting["status"]["phase"] == "Running"
        assert waiting["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1

    play(scenario, tmp_path)


def test_deletion_gives_grace_and_waits_for_the_end(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        made = await place.pod("polite", "sh", "-c", TERMINATES)
        await place.until("polite", lambda pod: pod["status"].get("phase") == "Running" and place.log(pod))
        log = tmp_path / "log"
        os.link(place.folder / "logs" / made["metadata"]["uid"] / "main.log", log)  # outlives the pod
        await place.delete("polite")
        await place.until_gone("polite")
        assert log.read_text().split() == ["ready", "bye"]
        await until(lambda: not list((place.folder / "pods").iterdir()))  # the node clears up after its last word

    play(scenario, tmp_path)


def test_who_ignores_the_grace_is_killed(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        await place.pod("deaf", "sh", "-c", "trap '' TERM; while true; do sleep 0.05; done")
        await place.until_phase("deaf", "Running")
        await place.delete("deaf", grace=1)
        await place.until_gone("deaf")

    play(scenario, tmp_path)


def test_a_pod_that_is_deleted_by_force_ends_too(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        pidfile = tmp_path / "pid"
        await place.pod("p", "sh", "-c", f"echo $$$$ > {pidfile}; exec sleep 1000")
        await place.until("p", lambda _: pidfile.exists() and pidfile.read_text())
        await place.delete("p", grace=0)
        await until(lambda: not psutil.pid_exists(int(pidfile.read_text())))

    play(scenario, tmp_path)


def test_active_deadline(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        await place.pod("late", "sleep", "1000", activeDeadlineSeconds=1)
        failed = await place.until_phase("late", "Failed")
        assert failed["status"]["reason"] == "DeadlineExceeded"

    play(scenario, tmp_path)
