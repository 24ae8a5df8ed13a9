"""A pod that exists only in a file: read as people write it, completed as the API server would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from carico.cli import main
from carico.errors import UsageError
from carico.http.message import Page, Request
from carico.scheduler.assembly import assemble
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.http import manifest, routes
from carico.scheduler.http.explain import Explainer
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, embedded_api_server, make_node
from harness.kube.faulty import CUT, FaultyServer

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    image: i\n"


def requests_of(resources: str, tmp_path: Path) -> dict[str, int]:
    file = tmp_path / "pod.yaml"
    file.write_text(POD + f"    resources: {resources}\n")
    return PodInfo(manifest.as_pod(manifest.read(str(file)), "file")).template.requests


@pytest.mark.parametrize(
    ("resources", "wanted"),
    [
        ("{requests: {cpu: 1}}", {"cpu": 1000}),
        ("{requests: {cpu: 0.5, memory: 1073741824}}", {"cpu": 500, "memory": 2**30}),
        ('{requests: {cpu: "1"}}', {"cpu": 1000}),
        ("{limits: {cpu: 4, example.com/gpu: 1}}", {"cpu": 4000, "example.com/gpu": 1}),
        ("{requests: {cpu: 1}, limits: {cpu: 4, memory: 1Gi}}", {"cpu": 1000, "memory": 2**30}),
        ("{requests: , limits: {cpu: 2}}", {"cpu": 2000}),
    ],
)
def test_requests_are_read_as_people_write_them(resources: str, wanted: dict[str, int], tmp_path: Path) -> None:
    assert requests_of(resources, tmp_path) == wanted


def pod(meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"} if meta is None else meta, "spec": spec}


def test_limits_of_the_whole_pod_are_its_requests_where_no_container_has_any() -> None:
    asking = {"name": "c", "resources": {"requests": {"cpu": 1}}}
    found = manifest.as_pod(pod(containers=[asking], resources={"limits": {"cpu": 4, "memory": "2Gi"}}), "x")
    assert PodInfo(found).template.requests == {"cpu": 1000, "memory": 2**31}


def test_ports_of_the_host_network_are_ports_of_the_host() -> None:
    container = {"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]}
    (found,) = manifest.as_pod(pod(containers=[container], hostNetwork=True), "x").spec.containers
    assert [port.host_port for port in found.ports] == [80, 8081]


def test_label_keys_become_a_part_of_the_selector_once() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["v"], "mismatchLabelKeys": ["tenant", "no"]}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    plain = pod({"name": "a", "labels": {"v": "2", "tenant": "t"}}, affinity=affinity, containers=[])
    twice = manifest.as_pod(manifest.completed(manifest.completed(plain)), "x")
    assert twice.spec.affinity is not None
    assert twice.spec.affinity.pod_affinity is not None
    selector = twice.spec.affinity.pod_affinity.required[0].label_selector
    assert selector is not None
    assert [(e.key, e.operator, e.values) for e in selector.match_expressions] == [
        ("v", "In", ("2",)),
        ("tenant", "NotIn", ("t",)),
    ]


def test_a_pod_without_a_name_gets_one() -> None:
    assert manifest.as_pod(pod({"generateName": "job-"}), "x").key == "default/job-00000"
    assert manifest.as_pod(pod({}), "x").key == "default/simulated-00000"
    assert manifest.as_new(pod({"generateName": "job-"}), "x")["metadata"] == {
        "generateName": "job-",
        "namespace": "default",
    }


def test_priorities_that_every_cluster_has_are_known() -> None:
    assert manifest.as_pod(pod(priorityClassName="system-node-critical"), "x").spec.priority == 2_000_001_000
    assert manifest.as_pod(pod(priorityClassName="gold"), "x").spec.priority == 0


def test_a_copy_of_a_stored_pod_is_taken_as_a_new_one() -> None:
    stored = pod({"name": "a", "uid": "u", "resourceVersion": "7", "labels": None}, nodeName="n1", containers=[])
    new = manifest.as_new(stored | {"status": {"phase": "Running"}}, "x")
    assert new == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"containers": []},
    }


@pytest.mark.parametrize(
    "text",
    [
        "kind: Deployment\n",
        "metadata: 5\n",
        "- a\n",
        "{",
        POD + "    resources: {requests: {cpu: lots}}\n",
        POD + "    resources: {requests: {cpu: true}}\n",
        POD + "    resources: much\n",
        POD + "    ports: 80\n",
    ],
)
def test_what_is_no_pod_is_an_error_of_the_one_who_asks(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"pod\.yaml: is not a"):
        manifest.as_pod(manifest.read(str(file)), str(file))


# --- the page ---


def simulate(body: Any) -> Page:
    parts = assemble(
        SchedulerSettings(on_stale="ignore", profiles={"carico": {"disable": ["Capacity"]}}), ManualClock(), None
    )
    parts.cluster.node_changed(None, make_node("small", cpu="1"))
    parts.cluster.node_changed(None, make_node("large", cpu="8"))
    request = Request("POST", {}, json.dumps(body).encode())
    return asyncio.run(routes._simulate(Explainer(parts, ManualClock()), request))


def test_the_page_takes_a_pod_as_it_was_written() -> None:
    page = simulate(
        {"metadata": {"generateName": "x-"}, "spec": {"containers": [{"resources": {"limits": {"cpu": 2}}}]}}
    )
    answer = json.loads(page.body)
    assert answer["pod"] == "default/x-00000"
    assert [verdict["node"] for verdict in answer["nodes"] if verdict["feasible"]] == ["large"]
    assert answer["notes"] == [manifest.UNKNOWN]


def test_a_pod_that_an_api_server_has_stored_gets_no_note_about_defaults() -> None:
    assert "notes" not in json.loads(simulate({"metadata": {"name": "x", "uid": "u"}, "spec": {}}).body)


@pytest.mark.parametrize(
    "body", [[], {"spec": []}, {"spec": {"containers": [{"resources": {"limits": {"cpu": "?"}}}]}}]
)
def test_the_page_refuses_what_is_no_pod(body: Any) -> None:
    assert simulate(body).status == HTTPStatus.BAD_REQUEST


# --- the word, against an API server that may refuse ---


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "pod.yaml"
    file.write_text(POD + "    resources: {limits: {cpu: 2}}\n")
    return file


def word(file: Path, fault: Callable[[str], int | None]) -> tuple[int, list[str]]:
    """Runs it on an embedded API server with two nodes; `fault` breaks dry runs. Exit code and their bodies."""
    folder, tried = file.parent, []

    def broken(method: str, path: str) -> int | None:
        if method == "POST":
            tried.append(path)
            return fault(path)
        return None

    async def run() -> int:
        async with (
            embedded_api_server(folder, tls=True) as (_, client),
            FaultyServer(folder / "kubeconfig", folder) as proxy,
        ):
            for name, cpu in (("small", "1"), ("large", "8")):
                node = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}}
                await client.call("POST", "/api/v1/nodes", json.dumps(node).encode())
            proxy.fault = broken
            argv = ["explain", "-f", str(file), "--json", "--kubeconfig", str(proxy.kubeconfig)]
            code = await asyncio.to_thread(main, argv)
            assert json.loads(await client.call("GET", "/api/v1/pods"))["items"] == [], "nothing was created"
            return code

    return asyncio.run(run()), tried


def feasible(answer: dict[str, Any]) -> list[str]:
    return [verdict["node"] for verdict in answer["nodes"] if verdict["feasible"]]


def about_the_manifest(answer: dict[str, Any]) -> list[str]:
    """Its notes, but the one that no scheduler could be reached."""
    return [note for note in answer["notes"] if not note.startswith("Pod-Capacity")]


def test_a_dry_run_gives_what_the_api_server_would_store(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert word(file, lambda _: None) == (0, ["/api/v1/namespaces/default/pods?dryRun=All"])
    answer = json.loads(capsys.readouterr().out)
    assert about_the_manifest(answer) == []


@pytest.mark.parametrize("status", [403, 404, 500])
def test_without_the_right_to_create_it_is_completed_here_and_that_is_said(
    status: int, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert word(file, lambda _: status)[0] == 0
    answer = json.loads(capsys.readouterr().out)
    assert feasible(answer) == ["large"]
    refused = f"the API server refused to try out the pod's creation ({status} made up by a test)"
    assert about_the_manifest(answer) == [f"{refused}: {manifest.UNKNOWN}"]


def test_without_an_answer_it_is_completed_here_and_that_is_said(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert word(file, lambda _: CUT)[0] == 0
    answer = json.loads(capsys.readouterr().out)
    assert feasible(answer) == ["large"]
    assert answer["notes"][0].startswith("no API server could apply its defaults to the pod (")


def test_a_pod_that_cannot_be_is_refused_with_the_api_servers_words(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert word(file, lambda _: 422)[0] == 2
    assert "the API server would not take this pod: made up by a test" in capsys.readouterr().err


def test_a_name_that_is_taken_does_not_matter(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter([409, None])
    code, tried = word(file, lambda _: next(answers))
    assert (code, len(tried)) == (0, 2)
    assert json.loads(capsys.readouterr().out)["pod"] == "default/a"
