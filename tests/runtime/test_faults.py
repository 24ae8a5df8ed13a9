"""Sockets that are missing, forbidden, without response, or of another protocol; a server that dies and restarts."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path

import grpc
import grpc.aio
import pytest

from carico.clock import SystemClock
from carico.errors import SourceError, SourceMissing
from carico.runtime import PodTable, open_source
from carico.runtime.api import containerd_events_pb2 as events_pb
from carico.runtime.auto import AutoSource
from carico.runtime.channel import probe
from carico.runtime.containerd import containerd
from carico.settings import RuntimeSettings
from carico.testing import ManualClock
from harness.node.container_pods import eventually, following
from harness.node.fake_containerd import FakeContainerd, sandbox


def test_a_server_that_dies_is_found_again_with_other_pods(place: Path) -> None:
    async def scenario() -> None:
        path = place / "c.sock"
        source = containerd(path, PodTable(RuntimeSettings()), SystemClock())
        async with FakeContainerd(sandbox("a")).on(path):
            run = asyncio.create_task(source.run())
            await eventually(lambda: source.table.counted() == {"a"}, "a is counted")
        await eventually(lambda: source.problem is not None, "the outage is noticed")
        assert source.table.counted() == {"a"}
        async with FakeContainerd(sandbox("b")).on(path):
            await eventually(lambda: source.table.counted() == {"b"}, "b is counted")
            assert source.problem is None
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

    asyncio.run(scenario())


def test_an_event_lost_before_the_subscription_was_active_is_found_by_the_second_listing(place: Path) -> None:
    async def scenario() -> None:
        path, fake = place / "c.sock", FakeContainerd()
        async with fake.on(path), following(containerd(path, PodTable(RuntimeSettings()), SystemClock())) as source:
            fake.running["box-a"] = sandbox("a")  # and no event is sent
            await eventually(lambda: source.table.counted() == {"a"}, "the second listing has it")

    asyncio.run(scenario())


def test_events_of_other_namespaces_unknown_ones_and_vanished_containers_change_nothing(place: Path) -> None:
    async def scenario() -> None:
        path, fake = place / "c.sock", FakeContainerd(sandbox("a"))
        async with fake.on(path), following(containerd(path, PodTable(RuntimeSettings()), SystemClock())) as source:
            fake.say("/tasks/exit", events_pb.TaskExit(container_id="box-a", id="box-a"), namespace="moby")
            fake.say("/tasks/exit", events_pb.TaskExit(container_id="box-a", id="exec-1"))
            fake.say("/tasks/delete", events_pb.TaskDelete(container_id="box-a", id="exec-1"))
            fake.say("/snapshot/prepare", b"whatever")
            fake.say("/containers/create", events_pb.ContainerCreate(id="vanished"))
            fake.running["box-b"] = sandbox("b")
            fake.say("/containers/create", events_pb.ContainerCreate(id="box-b"))
            fake.say("/tasks/start", events_pb.TaskStart(container_id="box-b"))
            await eventually(lambda: source.table.counted() == {"a", "b"}, "b is counted, a still is")

    asyncio.run(scenario())


@pytest.mark.parametrize("stored", [b"", b"not JSON", b"[]", b'{"Metadata": 3}', b'{"Metadata": {"Config": []}}'])
def test_metadata_that_cannot_be_read_still_makes_a_pod(place: Path, stored: bytes) -> None:
    async def scenario() -> None:
        path = place / "c.sock"
        async with (
            FakeContainerd(sandbox("a", stored)).on(path),
            following(containerd(path, PodTable(RuntimeSettings()), SystemClock())) as source,
        ):
            assert source.table.counted() == {"box-a"}

    asyncio.run(scenario())


def test_an_event_that_cannot_be_decoded_makes_it_list_again(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        path, fake = place / "c.sock", FakeContainerd()
        async with fake.on(path), following(containerd(path, PodTable(RuntimeSettings()), SystemClock())) as source:
            fake.running["box-a"] = sandbox("a")
            fake.say("/tasks/start", b"\xff\xff\xff")
            # Only then: the listing that follows every first one may find a before the event is read.
            await eventually(lambda: "trying again" in caplog.text, "the event is read")
            await eventually(lambda: source.table.counted() == {"a"}, "a is counted")

    asyncio.run(scenario())


def problem_of(path: Path, runtime: str = "containerd") -> str:
    """The problem that a source reports after its first attempt."""

    async def scenario() -> str:
        settings = RuntimeSettings(runtime=runtime, containerd_socket=path, cri_socket=path)
        source = open_source(settings, path, SystemClock())
        before = source.problem
        run = asyncio.create_task(source.run())
        await eventually(lambda: source.problem != before, "the source has tried")
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert source.problem is not None
        return source.problem

    return asyncio.run(scenario())


def test_no_socket(place: Path) -> None:
    assert problem_of(place / "none") == f"there is no socket {place}/none"


def test_a_socket_without_listener(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(place / "c.sock"))
    assert problem_of(place / "c.sock") == f"no process listens on {place}/c.sock; is the runtime running?"


@pytest.mark.needs("root")
def test_a_socket_without_permission(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as guarded:
        guarded.bind(str(place / "c.sock"))
        guarded.listen()
        os.chmod(place, 0o755)
        os.chmod(place / "c.sock", 0o600)
        os.seteuid(65534)
        try:
            with pytest.raises(SourceError, match=r"no permission to use .*; run as root or join") as caught:
                asyncio.run(probe(place / "c.sock"))
        finally:
            os.seteuid(0)
    assert not isinstance(caught.value, SourceMissing)


@pytest.mark.parametrize("runtime", ["containerd", "cri"])
def test_a_socket_of_another_protocol(place: Path, runtime: str) -> None:
    async def scenario() -> str:
        async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        path = place / "c.sock"
        async with await asyncio.start_unix_server(web, path):
            return await asyncio.to_thread(problem_of, path, runtime)

    assert asyncio.run(scenario()).startswith(f"{place}/c.sock: unavailable: ")


@pytest.mark.parametrize("runtime", ["containerd", "cri"])
def test_a_grpc_server_of_another_kind(place: Path, runtime: str) -> None:
    async def scenario() -> str:
        server = grpc.aio.server()
        server.add_insecure_port(f"unix:{place}/c.sock")
        await server.start()
        settings = RuntimeSettings(runtime=runtime, containerd_socket=place / "c.sock", cri_socket=place / "c.sock")
        source = open_source(settings, place, SystemClock())
        run = asyncio.create_task(source.run())
        await eventually(lambda: "not this API" in (source.problem or ""), "the source has tried")
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await server.stop(grace=None)
        return source.problem or ""

    assert asyncio.run(scenario()).endswith("choose another --runtime")


def test_auto_says_what_it_looked_for_once_and_finds_what_comes_later(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        settings = RuntimeSettings(containerd_socket=place / "c.sock", cri_socket=place / "crio.sock")
        source = AutoSource(settings, place, PodTable(settings), clock)
        run = asyncio.create_task(source.run())
        await eventually(lambda: "no socket" in (source.problem or ""), "it has looked")
        await clock.turn(60)
        (place / "kubepods" / "burstable" / "podaa-1" / "one").mkdir(parents=True)
        await clock.turn(10)
        await eventually(lambda: source.problem is None, "the tree is found")
        assert source.name == "cgroup"
        assert source.table.counted() == {"aa-1"}
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    assert "pods are counted by cgroup" in caplog.text


def test_none_counts_nothing_and_has_no_problem(place: Path) -> None:
    source = open_source(RuntimeSettings(runtime="none"), place, ManualClock())
    assert (source.name, source.problem, source.table.counted()) == ("none", None, frozenset())


def pod_of_the_kubelet(root: Path, uid: str) -> None:
    container = root / "kubepods" / "burstable" / f"pod{uid}" / "one"
    container.mkdir(parents=True)
    (container / "cgroup.procs").write_text("7\n")


def test_auto_leaves_a_containerd_that_is_not_the_kubelets(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Docker's containerd beside that of k3s: it answers, and has no pod, while the kubelet's cgroups have some."""

    async def scenario() -> None:
        clock = ManualClock()
        settings = RuntimeSettings(containerd_socket=place / "docker.sock", cri_socket=place / "crio.sock")
        source = AutoSource(settings, place, PodTable(settings), clock)
        async with FakeContainerd().on(place / "docker.sock"):
            run = asyncio.create_task(source.run())
            await eventually(lambda: source.problem is None, "it has listed")
            assert source.name == "containerd"
            await clock.turn(60)
            assert source.name == "containerd"  # no pods anywhere: no reason against it
            pod_of_the_kubelet(place, "aa-1")
            while source.name == "containerd":
                await clock.turn(1)
                await asyncio.sleep(0.001)
            await eventually(lambda: source.table.counted() == {"aa-1"}, "the pod is counted")
            assert source.name == "cgroup"
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert "docker.sock has no pods, but pods run below" in caplog.text


def test_auto_stays_with_a_containerd_that_has_the_pods(place: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        settings = RuntimeSettings(containerd_socket=place / "c.sock", cri_socket=place / "crio.sock")
        source = AutoSource(settings, place, PodTable(settings), clock)
        pod_of_the_kubelet(place, "a")
        async with FakeContainerd(sandbox("a")).on(place / "c.sock"):
            run = asyncio.create_task(source.run())
            await eventually(lambda: source.table.counted() == {"a"}, "a is counted")
            for _ in range(60):
                await clock.turn(1)
            assert source.name == "containerd"
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

    asyncio.run(scenario())


def test_auto_finds_the_containerd_that_a_distribution_brings(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        settings = RuntimeSettings(containerd_socket=place / "docker.sock", cri_socket=place / "crio.sock")
        source = AutoSource(settings, place, PodTable(settings), clock)
        pod_of_the_kubelet(place, "a")
        docker, k3s = FakeContainerd(), FakeContainerd(sandbox("a"))
        async with docker.on(place / "docker.sock"), k3s.on(place / "k3s.sock"):
            run = asyncio.create_task(source.run())
            while source.socket != place / "k3s.sock":
                await clock.turn(1)
                await asyncio.sleep(0.001)
            await eventually(lambda: source.table.counted() == {"a"}, "a is counted")
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

    monkeypatch.setattr("carico.runtime.auto.OTHER_CONTAINERDS", (place / "k3s.sock",))
    asyncio.run(scenario())
