"""The manifests: made from the code, accepted by a real API server, and least privileged by its own admission."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico import config
from carico.settings import AgentSettings, AggregatorSettings, SchedulerSettings
from harness.cluster import builder
from harness.cluster.api import ApiError
from harness.cluster.cluster import Cluster
from harness.cluster.errors import ClusterError
from harness.cluster.runs import CHECKOUT
from harness.install.deploy import OVERLAYS

NEW = "(make manifests)"
FOLDERS = {"agent": "daemonset", "aggregator": "aggregator", "scheduler": "scheduler"}
NAMESPACE = "carico-system"
overlays = pytest.mark.parametrize("overlay", sorted(path.name for path in OVERLAYS.iterdir()))


def made(folder: Path, kubectl: str) -> None:
    """A copy of the manifests, made again in `folder`."""
    for name in (*FOLDERS.values(), "install"):
        shutil.copytree(CHECKOUT / name, folder / name)
    shutil.copy(CHECKOUT / "kustomization.yaml", folder)
    tool = [sys.executable, str(CHECKOUT / "tools" / "manifests.py"), "--kubectl", kubectl, str(folder)]
    subprocess.run(tool, check=True, timeout=60)


def test_what_is_made_from_the_code_is_current(tmp_path: Path) -> None:
    made(tmp_path, "")
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert (CHECKOUT / file.relative_to(tmp_path)).read_text() == file.read_text(), f"{file} {NEW}"


@pytest.mark.cluster
@pytest.mark.needs("go")
def test_install_yaml_is_current(tmp_path: Path) -> None:
    made(tmp_path, builder.build(["kubectl"])["kubectl"])
    assert (CHECKOUT / "install.yaml").read_text() == (tmp_path / "install.yaml").read_text(), NEW


@pytest.mark.parametrize(
    ("settings", "section"),
    [(AgentSettings, "agent"), (AggregatorSettings, "aggregator"), (SchedulerSettings, "scheduler")],
)
def test_the_settings_in_the_config_maps_are_valid(settings: type[Any], section: str) -> None:
    file = CHECKOUT / FOLDERS[section] / "carico.toml"
    assert config.load(settings, section, file=file, environ={}, flags={}) is not None


def _documents(text: str) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all(text) if item]


def _all(kind: str) -> Iterator[dict[str, Any]]:
    yield from (item for item in _documents((CHECKOUT / "install.yaml").read_text()) if item["kind"] == kind)


def _pod_specs() -> dict[str, dict[str, Any]]:
    found = [*_all("DaemonSet"), *_all("Deployment")]
    return {item["metadata"]["name"]: item["spec"]["template"] for item in found}


def test_one_file_holds_one_object() -> None:
    for folder in ("aggregator", "daemonset", "scheduler", "install"):
        for file in (CHECKOUT / folder).rglob("*.yaml"):
            assert len(_documents(file.read_text())) == 1 or file.name == "spread.yaml", file


def test_only_the_script_of_a_cronjob_is_a_program_among_the_manifests() -> None:
    files = [path for name in FOLDERS.values() for path in (CHECKOUT / name).rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".yaml", ".toml", ".md", ".json", ".sh"}
    assert [path.name for path in files if path.suffix == ".sh"] == ["nodes.sh"]
    assert {path.parent.name for path in files if path.suffix == ".json"} == {"dashboards"}


def test_carico_never_waits_for_itself_and_is_no_workload() -> None:
    for name, template in _pod_specs().items():
        assert template["metadata"]["labels"]["carico.dev/workload"] == "false", name
        assert template["spec"].get("schedulerName", "default-scheduler") == "default-scheduler", name
        assert template["spec"]["priorityClassName"] == "carico-system", name


def test_the_agent_has_no_rights_at_the_api_server() -> None:
    bound = {subject["name"] for kind in ("ClusterRoleBinding", "RoleBinding") for subject in _subjects(kind)}
    assert "carico-agent" not in bound
    assert _pod_specs()["carico-agent"]["spec"]["automountServiceAccountToken"] is False


def _subjects(kind: str) -> Iterator[dict[str, Any]]:
    for item in _all(kind):
        yield from item["subjects"]


def test_every_container_is_confined() -> None:
    for name, template in _pod_specs().items():
        spec = template["spec"]
        (container,) = spec["containers"]
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}, name
        assert security["readOnlyRootFilesystem"] is True, name
        assert security["allowPrivilegeEscalation"] is False, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert container["resources"]["limits"].keys() == {"memory"}, name
        assert not {"hostPID", "hostNetwork", "hostIPC"} & spec.keys(), name


def test_the_host_paths_of_the_agent_are_read_only() -> None:
    spec = _pod_specs()["carico-agent"]["spec"]
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert set(hosts.values()) == {"/sys/fs/cgroup", "/run/containerd"}
    mounts = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] in hosts]
    assert all(mount["readOnly"] for mount in mounts)


# --- on a real API server ---


@pytest.fixture(scope="module")
def plane() -> Iterator[Cluster]:
    """A control plane without nodes, with the namespace, and stand-ins for the Prometheus operator's kinds."""
    with Cluster() as cluster:
        cluster.kubectl("apply", "-f", str(CHECKOUT / "install" / "common" / "namespace.yaml"))
        for kind, plural in (("PodMonitor", "podmonitors"), ("PrometheusRule", "prometheusrules")):
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(_any_kind("monitoring.coreos.com", kind, plural)))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield cluster


def _any_kind(group: str, kind: str, plural: str) -> dict[str, Any]:
    """A definition that accepts any fields: the operator's own is not here, so only names and structure are checked."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


@pytest.mark.cluster
@pytest.mark.needs("go")
@overlays
def test_the_api_server_accepts_every_overlay(plane: Cluster, overlay: str) -> None:
    """Unknown and duplicate fields are errors. Nothing is stored."""
    said = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", str(OVERLAYS / overlay))
    assert "daemonset.apps/carico-agent created (server dry run)" in said


@pytest.mark.cluster
@pytest.mark.needs("go")
def test_scheduler_and_aggregator_are_admitted_as_restricted_and_the_agent_is_not(plane: Cluster) -> None:
    """By the API server's own admission of pods."""
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": level}})
    refused = {}
    for name, template in _pod_specs().items():
        spec = {
            key: value
            for key, value in template["spec"].items()
            if key not in ("serviceAccountName", "priorityClassName")
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": spec | {"automountServiceAccountToken": False},
        }
        try:
            plane.kubectl("apply", "--dry-run=server", "-n", "restricted", "-f", "-", stdin=json.dumps(pod))
        except ClusterError as error:
            refused[name] = str(error)
    assert refused.keys() == {"carico-agent"}
    assert 'violates PodSecurity "restricted' in refused["carico-agent"]


@pytest.mark.cluster
@pytest.mark.needs("go")
def test_pods_of_labelled_namespaces_get_the_schedulers_name(plane: Cluster) -> None:
    plane.kubectl("apply", "-f", "-", stdin=_policy())
    for name, labels in (("opted-in", {"carico.dev/schedule": "enabled"}), ("left-out", {})):
        plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        plane.wait_for("its account", partial(_has_account, plane, name))
    plane.wait_for("the policy", lambda: _scheduler_of(plane, "opted-in") == "carico", 60)
    assert _scheduler_of(plane, "left-out") == "default-scheduler"
    assert _scheduler_of(plane, "opted-in", schedulerName="mine") == "mine"
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
    assert _scheduler_of(plane, "opted-in", owners=[owner]) == "default-scheduler"
    assert _scheduler_of(plane, "opted-in", nodeName="n") == "default-scheduler"


def _has_account(plane: Cluster, namespace: str) -> bool:
    try:
        return bool(plane.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
    except ApiError:
        return False


def _scheduler_of(plane: Cluster, namespace: str, owners: list[dict[str, Any]] | None = None, **spec: str) -> str:
    """The scheduler that the API server would store with a pod."""
    metadata = {"name": "p", "ownerReferences": owners or []}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    pod["spec"] = {"containers": [{"name": "c", "image": "i"}], **spec}
    stored = plane.kubectl(
        "create", "--dry-run=server", "-n", namespace, "-o", "json", "-f", "-", stdin=json.dumps(pod)
    )
    return str(json.loads(stored)["spec"]["schedulerName"])


def _policy() -> str:
    folder = CHECKOUT / "install" / "components" / "opt-in-by-namespace"
    return "---\n".join((folder / name).read_text() for name in ("policy.yaml", "binding.yaml"))
