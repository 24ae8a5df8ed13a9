"""Objects of the embedded API server: owners and what they own, namespaces, and bodies that make no sense."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.embedded.apiserver import patches, strategic
from carico.embedded.apiserver.status_error import StatusError
from carico.errors import ApiError
from carico.kube.client import Client
from carico.testing import embedded_api_server

PODS = "/api/v1/namespaces/default/pods"
Scenario = Callable[[Client], Awaitable[None]]


def play(folder: Path, scenario: Scenario) -> None:
    async def whole() -> None:
        async with embedded_api_server(folder) as (_, client):
            await scenario(client)

    asyncio.run(asyncio.wait_for(whole(), 60))


async def post(client: Client, path: str, body: Any) -> Any:
    return json.loads(await client.call("POST", path, json.dumps(body).encode()))


def pod(name: str, owner: str = "", **spec: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name}
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner}]
    return {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}]} | spec}


async def names(client: Client, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in json.loads(await client.call("GET", path))["items"]]


def test_what_an_owner_owns_goes_with_it(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        jobs = "/apis/batch/v1/namespaces/default/jobs"
        template: dict[str, Any] = {"spec": {"template": {"spec": {}}}}
        job = await post(client, jobs, {"metadata": {"name": "j"}} | template)
        await post(client, PODS, pod("owned", job["metadata"]["uid"]))
        await post(client, PODS, pod("bound", job["metadata"]["uid"], nodeName="n"))
        await post(client, PODS, pod("other"))
        await client.call("DELETE", f"{jobs}/j")
        assert await names(client, PODS) == ["bound", "other"]  # the node has not reported its end yet
        left = json.loads(await client.call("GET", f"{PODS}/bound"))
        assert "deletionTimestamp" in left["metadata"]
        job = await post(client, jobs, {"metadata": {"name": "j"}} | template)
        await post(client, PODS, pod("kept", job["metadata"]["uid"]))
        await client.call("DELETE", f"{jobs}/j", b'{"propagationPolicy": "Orphan"}')
        assert "kept" in await names(client, PODS)

    play(tmp_path, scenario)


def test_a_namespace_waits_for_its_pods_and_takes_nothing_new(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        await post(client, "/api/v1/namespaces", {"metadata": {"name": "x"}})
        inside = "/api/v1/namespaces/x/pods"
        await post(client, inside, pod("bound", nodeName="n"))
        await post(client, inside, pod("waiting"))
        await client.call("DELETE", "/api/v1/namespaces/x")
        left = json.loads(await client.call("GET", "/api/v1/namespaces/x"))
        assert left["status"]["phase"] == "Terminating"
        assert await names(client, inside) == ["bound"]
        with pytest.raises(ApiError, match=r"403 Forbidden.*being terminated"):
            await post(client, inside, pod("late"))
        await client.call("DELETE", f"{inside}/bound", b'{"gracePeriodSeconds": 0}')
        with pytest.raises(ApiError, match="404 NotFound"):
            await client.call("GET", "/api/v1/namespaces/x")

    play(tmp_path, scenario)


def test_numbers_are_quantities_and_null_is_nothing(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}
        asked = {"metadata": {"name": "p", "labels": None}, "spec": {"containers": [container], "nodeSelector": None}}
        made = await post(client, PODS, asked)
        assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}

    play(tmp_path, scenario)


def test_many_events_push_out_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carico.embedded.apiserver.verbs.MOST_EVENTS", 3)

    async def scenario(client: Client) -> None:
        for i in range(5):
            await post(
                client, "/api/v1/namespaces/default/events", {"metadata": {"name": f"e{i}"}, "involvedObject": {}}
            )
        assert await names(client, "/api/v1/events") == ["e2", "e3", "e4"]

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"7", b"null", b'{"metadata": 5}', b'{"metadata": {"name": 5}}',
        b'{"metadata": {"labels": []}}',
        b'{"metadata": {"name": "x"}, "spec": 5}', b'{"metadata": {"name": "x"}, "spec": {"containers": 5}}',
        b'{"metadata": {"name": "x"}, "spec": {"containers": [5]}}',
        b'{"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": 5}]}}',
        b'{"metadata": {"name": "x", "ownerReferences": [5]}, "spec": {"containers": [{"name": "c", "image": "i"}]}}',
        b'{"metadata": {"name": "x", "finalizers": 5}, "spec": {"containers": [{"name": "c", "image": "i"}]}}',
        b'{"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": 5}}',
        b'{"metadata": {"name": "x"}, "spec": {"containers": [{"name": ["c"], "image": "i"}]}}',
        b'{"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": {}}}',
        b'{"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": '
        b'{"requests": {"cpu": "much"}}}]}}',
    ],
)  # fmt: skip
def test_a_body_that_makes_no_sense_is_the_askers_fault(tmp_path: Path, body: bytes) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(ApiError) as refused:
            await client.call("POST", PODS, body)
        assert refused.value.status in (400, 422)
        assert await names(client, PODS) == []

    play(tmp_path, scenario)


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", "name", "$patch", "delete"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["a", "containers", "conditions", "name", "type", "finalizers", "$patch", "$setElementOrder/a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_json, _json)
def test_any_patch_is_applied_or_refused_and_leaves_the_object_as_it_was(target: Any, patch: Any) -> None:
    before = json.dumps([target, patch])
    for apply in (patches.merged, strategic.merged, patches.stepwise):
        with contextlib.suppress(StatusError):  # anything else fails
            apply(target, patch)
    assert json.dumps([target, patch]) == before


def test_a_merge_patch_twice_is_once() -> None:
    start = {"a": {"b": 1}, "containers": [{"name": "x", "env": [{"name": "e", "value": "1"}]}]}
    patch = {"a": None, "containers": [{"name": "x", "env": [{"name": "f", "value": "2"}]}, {"name": "y"}]}
    once = strategic.merged(start, patch)
    assert strategic.merged(once, patch) == once
    assert {one["name"]: [e["name"] for e in one.get("env", [])] for one in once["containers"]} == {
        "x": ["f", "e"],
        "y": [],
    }
