"""The sources against a real containerd, 1.6 and 2.x: the count is right at every step, whatever ends in between."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carico.clock import SystemClock
from carico.pod_class import class_of
from carico.runtime import RuntimeSource, open_source
from carico.runtime.cri import CriConnection
from carico.runtime.cri_stats import CriStats
from carico.settings import RuntimeSettings
from carico.types import ClassKey, PodCount, PodCounters
from harness.cluster.handle import Containerd
from harness.cluster.runs import hierarchies
from harness.node.container_pods import Engine, eventually, following, hand

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.needs("root", "namespaces", "containerd", "cni", "busybox", "go"),
]
PODS = 20


@pytest.fixture(scope="module")
def engine(containerd: Containerd) -> Iterator[Engine]:
    engine = Engine(containerd)
    yield engine
    engine.kill()


@pytest.fixture(autouse=True)
def quick_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """containerd 1.6 streams no CRI events, so that every step would wait for a listing."""
    monkeypatch.setattr(CriConnection, "relist_without_events", 0.05)


def source_of(engine: Engine, runtime: str, settings: RuntimeSettings | None = None) -> RuntimeSource:
    settings = settings or RuntimeSettings()
    settings = dataclasses.replace(settings, runtime=runtime, containerd_socket=engine.socket, cri_socket=engine.socket)
    return open_source(settings, Path("/sys/fs/cgroup"), SystemClock())


def count(source: RuntimeSource) -> PodCount:
    return source.table.count(time.monotonic())


async def counts(source: RuntimeSource, uids: set[str]) -> None:
    await eventually(lambda: source.table.counted() == uids, f"{source.name} counts {sorted(uids)}")
    assert source.table.workload().keys() == uids


@pytest.mark.parametrize("runtime", ["containerd", "cri"])
def test_the_count_is_right_at_every_step(engine: Engine, runtime: str) -> None:
    async def scenario() -> None:
        async with hand(engine) as kubelet, following(source_of(engine, runtime)) as source:
            boxes: dict[str, str] = {}
            for number in range(PODS):
                uid = f"uid-{number}"
                boxes[uid] = await kubelet.sandbox(uid)
                await counts(source, set(boxes))
            for uid in sorted(boxes):
                await kubelet.remove(boxes.pop(uid))
                await counts(source, set(boxes))
                assert uid in source.table.finished(time.monotonic())

    asyncio.run(scenario())


@pytest.mark.parametrize("runtime", ["containerd", "cri"])
def test_it_stays_right_across_restarts_of_containerd_and_of_the_source(engine: Engine, runtime: str) -> None:
    async def scenario() -> None:
        async with hand(engine) as kubelet:
            async with following(source_of(engine, runtime)) as source:
                boxes = {uid: await kubelet.sandbox(uid) for uid in ("a", "b", "c")}
                await counts(source, set(boxes))
                engine.kill()
                await eventually(lambda: source.problem is not None, "the outage is noticed")
                await asyncio.to_thread(engine.start)
                await eventually(lambda: source.problem is None, "the source is back")
                await counts(source, {"a", "b", "c"})
                await kubelet.remove(boxes["a"])
                boxes["d"] = await kubelet.sandbox("d")
                await counts(source, {"b", "c", "d"})
            async with following(source_of(engine, runtime)) as source:
                await counts(source, {"b", "c", "d"})
                await kubelet.remove(boxes["b"])
                await counts(source, {"c", "d"})

    asyncio.run(scenario())


def test_what_ends_while_containerd_is_away_is_gone_afterwards(engine: Engine) -> None:
    """The source sleeps through it all: another one has removed a pod and made one before it comes back."""

    async def scenario() -> None:
        async with hand(engine) as kubelet, following(source_of(engine, "containerd")) as source:
            boxes = {uid: await kubelet.sandbox(uid) for uid in ("a", "b")}
            await counts(source, set(boxes))
            engine.kill()
            await asyncio.to_thread(engine.start)
            await kubelet.remove(boxes["a"])
            await kubelet.sandbox("c")
            await counts(source, {"b", "c"})
            assert "a" in source.table.finished(time.monotonic())

    asyncio.run(scenario())


@pytest.mark.parametrize("runtime", ["containerd", "cri"])
def test_classes_of_pods(engine: Engine, runtime: str) -> None:
    async def scenario() -> None:
        async with hand(engine) as kubelet, following(source_of(engine, runtime)) as source:
            await kubelet.sandbox("work", labels={"app": "web"}, annotations={"kubernetes.io/config.source": "api"})
            await kubelet.sandbox("stateful", labels={"controller-revision-hash": "web-1"})
            await kubelet.sandbox("daemon", labels={"pod-template-generation": "1", "controller-revision-hash": "x"})
            await kubelet.sandbox("static", annotations={"kubernetes.io/config.source": "file"})
            everyone = {"work", "stateful", "daemon", "static"}
            await eventually(lambda: source.table.counted() == everyone, "all four are counted")
            assert source.table.workload().keys() == {"work", "stateful"}
            async with following(source_of(engine, runtime)) as second:  # from the listing alone
                assert second.table.counted() == everyone
                assert second.table.workload().keys() == {"work", "stateful"}

    asyncio.run(scenario())


@pytest.mark.parametrize("runtime", ["containerd", "cri"])
def test_a_stopped_sandbox_that_lingers_does_not_count(engine: Engine, runtime: str) -> None:
    async def scenario() -> None:
        async with hand(engine) as kubelet, following(source_of(engine, runtime)) as source:
            box = await kubelet.sandbox("a")
            await counts(source, {"a"})
            await kubelet.stop(box)
            await counts(source, set())
            async with following(source_of(engine, runtime)) as second:
                assert second.table.counted() == frozenset()

    asyncio.run(scenario())


def test_an_exec_probe_is_neither_churn_nor_an_exit(engine: Engine) -> None:
    """Churn windows of an hour: had the probe counted as a deletion, the churn would last."""
    quiet = RuntimeSettings(churn_after_start=0.0, churn_after_delete=3600.0, settle=0.0)

    async def scenario() -> None:
        async with hand(engine) as kubelet, following(source_of(engine, "containerd", quiet)) as source:
            box = await kubelet.sandbox("a")
            container = await kubelet.container(box, "a")
            await eventually(lambda: count(source) == PodCount(1, churn=False, unsettled=0), "the pod has settled")
            await kubelet.exec_probe(container)
            await kubelet.sandbox("b")  # its event comes after those of the probe
            await eventually(lambda: len(source.table.workload()) == 2, "the second pod is counted")
            await eventually(lambda: not count(source).churn, "no churn but the start's")
            assert source.table.workload()["a"].running

    asyncio.run(scenario())


def test_a_pod_settles_once_its_container_has_run_for_a_while(engine: Engine) -> None:
    settings = RuntimeSettings(settle=3600.0)

    async def scenario() -> None:
        async with hand(engine) as kubelet, following(source_of(engine, "containerd", settings)) as source:
            box = await kubelet.sandbox("a")
            await kubelet.container(box, "a")
            await eventually(lambda: source.table.workload()["a"].running, "the container is known")
            await eventually(lambda: count(source) == PodCount(1, churn=False, unsettled=1), "churn is over")
            later = time.monotonic() + settings.settle
            assert source.table.count(later) == PodCount(1, churn=False, unsettled=0)

    asyncio.run(scenario())


def test_cgroups_count_the_same_pods(engine: Engine) -> None:
    parent = engine.cgroup_parent.lstrip("/")
    root = next(top for top in hierarchies() if top.name in ("memory", "cgroup")) / parent

    async def scenario() -> None:
        (root / "kubepods").mkdir(exist_ok=True)
        source = open_source(RuntimeSettings(runtime="cgroup"), root, SystemClock())
        async with hand(engine) as kubelet, following(source):
            boxes: dict[str, str] = {}
            for number in range(5):
                uid = f"0000000{number}-aaaa"
                boxes[uid] = await kubelet.sandbox(uid, cgroup=f"/kubepods/burstable/pod{uid}")
                await counts(source, set(boxes))
            for uid in sorted(boxes):
                await kubelet.remove(boxes.pop(uid))
                await counts(source, set(boxes))

    asyncio.run(scenario())


def test_auto_takes_containerd(engine: Engine) -> None:
    async def scenario() -> None:
        async with following(source_of(engine, "auto")) as source:
            assert source.name == "containerd"

    asyncio.run(scenario())


@pytest.mark.parametrize("runtime", ["containerd", "cri"])
def test_each_pod_has_its_class_its_start_and_its_cgroup(engine: Engine, runtime: str) -> None:
    cgroup = "/kubepods/burstable/pod00aa-11"

    async def scenario() -> None:
        async with hand(engine) as kubelet, following(source_of(engine, runtime)) as source:
            box = await kubelet.sandbox("00aa-11", cgroup=cgroup, labels={"app": "web", "pod-template-hash": "5d"})
            await eventually(lambda: "00aa-11" in source.table.workload(), "the sandbox is known")
            pods = source.table.workload
            assert (pods()["00aa-11"].started, pods()["00aa-11"].running) == (None, False)
            before = time.monotonic()
            container = await kubelet.container(box, "00aa-11", cgroup=cgroup)
            await eventually(lambda: pods()["00aa-11"].running, "the container is known")
            await eventually(lambda: pods()["00aa-11"].cgroup is not None, "its cgroup is known")
            pod = pods()["00aa-11"]
            assert pod.key == ClassKey("tests", "tests/web", "5d")
            assert pod.cgroup == engine.cgroup_parent + cgroup
            assert pod.started is not None
            assert before - 1.0 < pod.started <= time.monotonic()
            await kubelet.stop_container(container)
            await eventually(lambda: not pods()["00aa-11"].running, "its end is known")
            assert count(source).running == 0
            assert source.table.counted() == {"00aa-11"}

    asyncio.run(scenario())


@pytest.mark.parametrize("runtime", ["containerd", "cri"])
def test_a_bare_pod_is_known_by_the_image_of_its_spec(engine: Engine, runtime: str) -> None:
    # containerd 1.6 keeps only the image of the request.
    kept = engine.sealed.busybox_image if engine.sealed.version.startswith("1.") else "tool:1"

    async def scenario() -> None:
        async with hand(engine) as kubelet, following(source_of(engine, runtime)) as source:
            box = await kubelet.sandbox("a")
            await kubelet.container(box, "a", asked_for="docker.io/library/tool:1")
            key = class_of("tests", "a", {}, {}, [kept])
            await counts(source, {"a"})
            await eventually(lambda: source.table.workload()["a"].key == key, f"its class is {key}")

    asyncio.run(scenario())


def test_cri_reports_what_each_pod_uses(engine: Engine) -> None:
    async def scenario() -> None:
        stats = CriStats(lambda: engine.socket, SystemClock())
        async with hand(engine) as kubelet:
            box = await kubelet.sandbox("a")
            burn = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); while :; do :; done"
            await kubelet.container(box, "a", command=["sh", "-c", burn])
            run = asyncio.create_task(stats.run())
            first = await _reading(stats, "a", lambda one: one.memory_working_set > 30e6)
            later = await _reading(stats, "a", lambda one: one.usage_seconds > first[1].usage_seconds + 0.2)
            assert later[0] > first[0]
            assert later[1].memory_working_set < 300e6
            assert stats.read("b", None) is None
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

    asyncio.run(scenario())


async def _reading(stats: CriStats, uid: str, holds: Callable[[PodCounters], bool]) -> tuple[float, PodCounters]:
    found: list[tuple[float, PodCounters]] = []

    def look() -> bool:
        read = stats.read(uid, None)
        if read is not None and holds(read[1]):
            found.append(read)
        return bool(found)

    await eventually(look, f"the runtime tells of {uid}")
    return found[0]
