"""The list of all requests, and the roles and rights that are generated from it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

import carico
from carico.errors import CaricoError
from carico.kube import calls
from carico.kube.calls import CALLS, ApiCall, ApiResource, FollowedResource, NeededBy
from carico.kube.rights import Right, rights
from carico.kube.roles import manifests
from carico.scheduler import enabled_parts
from carico.settings import SchedulerSettings

GOLDEN = Path(__file__).parent / "recorded" / "roles.yaml"
ALL_PARTS = {
    NeededBy.SCHEDULER,
    NeededBy.ELECTION,
    NeededBy.EXTENDER,
    NeededBy.PRIVATE_PAGES,
    NeededBy.NODE_CAPACITIES,
}


def test_every_call_of_the_module_is_in_the_list_once() -> None:
    named = [value for value in vars(calls).values() if isinstance(value, ApiCall)]
    followed = [value for value in vars(calls).values() if isinstance(value, FollowedResource)]
    named += [call for pair in followed for call in (pair.list, pair.watch)]
    assert set(named) == set(CALLS)
    assert len({(call.verb, call.resource, call.subresource) for call in CALLS}) == len(CALLS)
    assert all(call.needed_by and call.why for call in CALLS)


@pytest.mark.parametrize(
    ("call", "namespace", "name"),
    [
        (calls.DELETE_POD, "default", ""),  # would delete all pods of the namespace
        (calls.BIND_POD, "default", ""),
        (calls.DELETE_POD, "", "p"),
        (calls.CREATE_POD, "", ""),
        (calls.CREATE_POD, "default", "p"),
        (calls.PATCH_NODE, "", ""),
        (calls.DELETE_PODS, "default", "p"),
    ],
)
def test_an_empty_name_makes_no_other_request(call: ApiCall, namespace: str, name: str) -> None:
    with pytest.raises(CaricoError, match=r"needs|takes no"):
        call.path(namespace, name)


def test_the_roles_are_as_recorded() -> None:
    assert manifests(ALL_PARTS, "kube-system") == GOLDEN.read_text()


def _granted(text: str) -> set[Right]:
    """The rights in the YAML, read by another parser than ours wrote it with."""
    found = set()
    for role in yaml.safe_load_all(text):
        namespace = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            only = rule.get("resourceNames", [""])
            for group in rule["apiGroups"]:
                for resource, _, sub in (name.partition("/") for name in rule["resources"]):
                    found |= {Right(verb, group, resource, sub, namespace, n) for verb in rule["verbs"] for n in only}
    return found


INSTALLED = {
    *(NeededBy.SCHEDULER, NeededBy.ELECTION, NeededBy.TOKENS, NeededBy.CERTIFICATES, NeededBy.NODE_CAPACITIES),
}


@pytest.mark.parametrize(
    "parts", [{NeededBy.SCHEDULER}, ALL_PARTS, INSTALLED, {NeededBy.SCHEDULER, NeededBy.ELECTION}, {NeededBy.TOKENS}]
)
def test_the_roles_grant_what_the_doctor_checks(parts: set[NeededBy]) -> None:
    text = manifests(parts, "team")
    assert _granted(text) == set(rights(parts, "team", "carico-scheduler", optional=True))
    assert text.count("kind: Role\n") == (NeededBy.ELECTION in parts)


def test_the_rights_on_secrets_are_on_three_of_one_namespace() -> None:
    on_secrets = {right for right in _granted(manifests(INSTALLED, "carico-system")) if right.resource == "secrets"}
    assert {right.namespace for right in on_secrets} == {"carico-system"}
    assert {(right.verb, right.name) for right in on_secrets} == {("create", "")} | {
        (verb, name)
        for verb in ("get", "update")
        for name in ("carico-ca", "carico-scheduler-tls", "carico-aggregator-tls")
    }
    assert _granted(manifests({NeededBy.TOKENS}, "")) == {Right("create", "authentication.k8s.io", "tokenreviews")}


def test_nothing_is_granted_that_would_let_the_scheduler_take_over_the_cluster() -> None:
    for role in yaml.safe_load_all(GOLDEN.read_text()):
        for rule in role["rules"]:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            assert not {"secrets", "pods/exec", "serviceaccounts/token"} & set(rule["resources"])
            assert rule["resources"] != ["pods"] or "create" not in rule["verbs"]
            if rule["resources"] == ["leases"] and rule["verbs"] != ["create"]:
                assert rule["resourceNames"] == ["carico-scheduler"]


def test_settings_switch_rights_on() -> None:
    def parts(**settings: Any) -> frozenset[NeededBy]:
        return enabled_parts.parts(SchedulerSettings(**settings))

    assert parts() == {NeededBy.SCHEDULER, NeededBy.ELECTION, NeededBy.NODE_CAPACITIES}
    assert parts(leader_elect=False, node_capacities=False) == {NeededBy.SCHEDULER}
    assert parts(token_audience="carico", issue_certificates=True) == INSTALLED
    assert parts(extender_listen="127.0.0.1:1", debug_listen="0.0.0.0:2") == ALL_PARTS


# --- only kube builds paths of the API ---

ROOT = Path(carico.__file__).parent
# Servers: they compare the paths of requests that they receive.
SERVERS = (ROOT / "embedded" / "apiserver",)


def _texts(tree: ast.AST) -> list[str]:
    """All string literals that are no docstrings, parts of f-strings included."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs]
    return [node.value for node in constants if isinstance(node.value, str)]


def _builds_a_path(text: str) -> bool:
    return text.startswith(("/api/", "/apis/")) or "/namespaces/" in text or text in ("/api", "/apis")


def _builders() -> set[str]:
    found = set()
    for path in ROOT.rglob("*.py"):
        if not any(server in path.parents for server in SERVERS) and path.name.endswith("_pb2.py") is False:
            texts = _texts(ast.parse(path.read_text()))
            if any(map(_builds_a_path, texts)):
                found.add(str(path.relative_to(ROOT)))
    return found


def test_only_the_list_of_calls_builds_paths_of_the_api() -> None:
    assert _builders() == {"kube/calls.py"}


def test_only_kube_patches_and_deletes() -> None:
    """A method or a media type of patches outside kube is a request that no entry of the list stands for."""
    offenders = set()
    for path in ROOT.rglob("*.py"):
        inside = ROOT / "kube" in path.parents or any(server in path.parents for server in SERVERS)
        if not inside:
            texts = _texts(ast.parse(path.read_text()))
            if {"PATCH", "PUT", "DELETE"} & set(texts) or any("patch+json" in text for text in texts):
                offenders.add(str(path.relative_to(ROOT)))
    assert offenders == set()


def test_paths_of_resources() -> None:
    assert ApiResource("apps", "v1", "replicasets").path("a b") == "/apis/apps/v1/namespaces/a%20b/replicasets"
    with pytest.raises(CaricoError, match="not a valid name"):
        ApiResource("", "v1", "pods").path("default", "..")
