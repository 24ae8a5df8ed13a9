"""Objects with null or an invalid value in any field: the scheduler continues and follows all other objects."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico.kube.meta import KubeObject
from carico.kube.objects import Node, Pod
from carico.kube.watch import WatchedResource
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.informers import NODES, OTHERS, PODS, Informers
from carico.scheduler.queue.unschedulable import Diagnosis
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod
from harness.kube.played import PlayedServer
from harness.kube.recorded import RECORDED, Path, at, paths

Tree = dict[str, Any]
FOLLOWED: list[WatchedResource[Any]] = [PODS, NODES, *OTHERS]
RESOURCES: dict[type[KubeObject], WatchedResource[Any]] = {resource.type: resource for resource in FOLLOWED}
KINDS = sorted(RESOURCES, key=lambda kind: kind.__name__)
NONSENSE: tuple[Any, ...] = (
    None,
    "x",
    "",
    "10P",
    "-5",
    "1e8000000",
    7,
    -1,
    10**30,
    0.5,
    True,
    [],
    ["x"],
    {},
    {"x": "y"},
    [[]],
    [{}],
)


def recorded(kind: type[KubeObject], name: str = "") -> Tree:
    """As the API server sent it, or another one like it. A pod is bound, so that it counts."""
    obj = copy.deepcopy(RECORDED[kind])
    if kind is Pod:
        obj["spec"]["nodeName"] = "a"
    if name:
        obj["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    return obj


def spoilt(obj: Tree, path: Path, value: Any) -> Tree:
    bad = copy.deepcopy(obj)
    at(bad, path[:-1])[path[-1]] = value
    return bad


class Stage:
    """The watch of one kind with the scheduler's own handler behind it."""

    def __init__(self, kind: type[KubeObject]) -> None:
        self.kind, self.version = kind, 100
        self.server = PlayedServer([[recorded(kind), recorded(kind, "witness")]], [[]])
        self.parts: Components = assemble(SchedulerSettings(validate=True), ManualClock(), None)
        self.parts.cluster.node_changed(None, make_node("a"))
        self.parts.cluster.pod_changed(None, make_pod("waiting"))
        self.refuse()
        clock = ManualClock()
        watches = Informers(self.server.client, self.parts.cluster, clock, self.parts.metrics)
        self.reflector = next(r for r in watches.all if r.resource.type is kind)

    def refuse(self) -> None:
        """The waiting pod waits for everything that any plugin has an interest in, so that every hint is called."""
        queue, profile = self.parts.queue, self.parts.profiles["carico"]
        names = frozenset(plugin.name for plugin in profile.plugins)
        while (queued := queue.pop(0.0)) is not None:
            queue.fail(queued, Diagnosis(names, profile.interests(names)), -1000.0)
        assert queue.counts()["waiting"] == 1

    def say(self, obj: Tree, what: str = "MODIFIED") -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.server.say({"type": what, "object": obj})

    def witness(self) -> None:
        """Another object changes; the handler must be called for it."""
        other = recorded(self.kind, "witness")
        other["metadata"]["labels"] = {"version": str(self.version + 1)}
        self.say(other)

    def seen(self) -> str:
        """The label of the witness as the scheduler has it."""
        snapshot = self.parts.snapshot
        if self.kind is Pod:
            found: KubeObject = snapshot.pods["uid-witness"][0].pod
        elif self.kind is Node:
            node = snapshot.nodes[snapshot.rows.number["witness"]]
            assert node is not None
            found = node
        else:
            key = next(key for key in self.reflector.store if key.endswith("witness"))
            found = snapshot.store._tables[self.kind.__name__][key]
        return found.metadata.labels["version"]

    @property
    def errors(self) -> float:
        """Of handlers and of hints."""
        metrics, plugins = self.parts.metrics, self.parts.profiles["carico"].plugins
        handlers = metrics.handler_errors.labels(self.kind.__name__)._value.get()
        return float(handlers + sum(metrics.plugin_errors.labels(plugin.name)._value.get() for plugin in plugins))


def play(kind: type[KubeObject], objects: Iterator[Tree]) -> Stage:
    async def scenario() -> Stage:
        stage = Stage(kind)
        task = asyncio.create_task(stage.reflector.run())
        await stage.server.received()
        for obj in objects:
            stage.say(obj)
            stage.witness()
            await stage.server.received()
            assert stage.seen() == str(stage.version), obj
            stage.refuse()
        stage.say(recorded(kind))
        stage.say(recorded(kind), "DELETED")
        stage.witness()
        await stage.server.received()
        assert stage.seen() == str(stage.version)
        assert (stage.server.lists, len(stage.server.watched_from)) == (1, 1)  # the watch never ended
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return stage

    return asyncio.run(scenario())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_null_in_any_field(kind: type[KubeObject]) -> None:
    obj = recorded(kind)
    stage = play(kind, (spoilt(obj, path, None) for path in paths(obj)))
    assert stage.errors == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_invalid_value_in_any_field(kind: type[KubeObject]) -> None:
    """One object of a kind, spoilt in every place; every seventh value there, so that it does not take minutes."""
    obj = recorded(kind)
    places = [(path, value) for path in paths(obj) for value in NONSENSE]
    stage = play(kind, (spoilt(obj, path, value) for path, value in places[:: 7 if kind is Pod else 1]))
    assert stage.errors == 0


@settings(max_examples=30)
@given(st.data())
def test_invalid_values_in_many_fields(data: st.DataObject) -> None:
    kinds: list[type[KubeObject]] = [Pod, Node]
    kind = data.draw(st.sampled_from(kinds))
    things = []
    for _ in range(5):
        obj = recorded(kind)
        for _ in range(data.draw(st.integers(1, 5))):
            if places := paths(obj):
                obj = spoilt(obj, data.draw(st.sampled_from(places)), data.draw(st.sampled_from(NONSENSE)))
        if isinstance(obj.get("metadata"), dict):
            things.append(obj)
    assert play(kind, iter(things)).errors == 0
