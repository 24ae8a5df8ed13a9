"""How the soak's history comes from what a watch delivers, and how agents forge objects."""

from __future__ import annotations

import json
import random
from typing import Any

from harness.soak import objects
from harness.soak.history import (
    PodSeen,
)
from harness.soak.observer import Observer
from harness.soak.recorder import Recorder


def seen_pod(**changes: Any) -> dict[str, Any]:
    requests = {"resources": {"requests": {"cpu": "1500m"}}}
    return {
        "metadata": {"uid": "u", "name": "p", "namespace": "soak", "labels": {"carico.test/plain": "yes"}}
        | changes.pop("metadata", {}),
        "spec": {"schedulerName": "carico", "containers": [requests, requests]} | changes.pop("spec", {}),
        "status": {"phase": "Pending"} | changes,
    }


def test_the_observer_writes_down_the_way_of_a_pod() -> None:
    recorder = Recorder()
    observer = Observer(None, recorder)  # type: ignore[arg-type]
    observer.pod("ADDED", seen_pod())
    observer.pod("MODIFIED", seen_pod(nominatedNodeName="a"))
    observer.pod("MODIFIED", seen_pod(spec={"nodeName": "a"}))
    observer.pod("MODIFIED", seen_pod(spec={"nodeName": "a"}, phase="Running"))
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    observer.pod("MODIFIED", seen_pod(spec={"nodeName": "a"}, phase="Running", metadata=leaving))
    observer.pod("DELETED", seen_pod(spec={"nodeName": "a"}, phase="Running", metadata=leaving))
    kinds = [type(event).__name__ for event in recorder.history]
    assert kinds == ["PodSeen", "Nominated", "Bound", "Started", "Leaving", "Gone"]
    seen = recorder.history[0]
    assert isinstance(seen, PodSeen)
    assert (seen.cpu, seen.ours, seen.plain) == (3000, True, True)
    assert not recorder.state.pods
    assert not observer.objects


def test_the_observer_sees_a_changed_number_of_units() -> None:
    recorder = Recorder()
    observer = Observer(None, recorder)  # type: ignore[arg-type]
    observer.pod("ADDED", seen_pod(metadata={"annotations": {"carico.dev/units": "lots"}}))
    observer.pod("MODIFIED", seen_pod(metadata={"annotations": {"carico.dev/units": "0.5"}}))
    assert [event.units for event in recorder.history if isinstance(event, PodSeen)] == [1.0, 0.5]


def test_null_takes_the_place_of_what_is_empty_and_of_nothing_else() -> None:
    obj = seen_pod(spec={"nodeSelector": {"pool": "open"}})
    line = json.dumps({"type": "MODIFIED", "object": obj}).encode()
    changed = json.loads(objects.with_nulls("/api/v1/pods?watch=1", line))["object"]
    assert changed["spec"]["nodeSelector"] == {"pool": "open"}
    assert changed["spec"]["volumes"] is None
    assert changed["metadata"]["finalizers"] is None
    assert objects.with_nulls("/api/v1/services?watch=1", line) == line


def test_a_forging_agent_keeps_its_victims() -> None:
    changer = objects.TypeChanger(random.Random(1), 1.0)
    line = json.dumps({"type": "MODIFIED", "object": seen_pod()}).encode()
    assert changer("/api/v1/pods?watch=1", line) != line
    assert changer.victims == {"/api/v1/namespaces/soak/pods/p"}
    deleted = json.dumps({"type": "DELETED", "object": seen_pod()}).encode()
    assert changer("/api/v1/pods?watch=1", deleted) == deleted
