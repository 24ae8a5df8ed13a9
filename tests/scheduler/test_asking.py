"""`carico explain` and `decisions`: names and forms as kubectl has them, and no server named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico.errors import UsageError
from carico.scheduler.http import bounded_yaml, remote
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import needs_node
from harness.dashboard.stage import Stage, until

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
FORWARDER = """#!/bin/sh
printf '%s\\n' "$*" >> {log}
echo "Forwarding from 127.0.0.1:{port} -> 9469"
exec sleep 600
"""
DENIED = "#!/bin/sh\necho 'error: pods \"leader\" is forbidden' >&2\nexit 1\n"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Two nodes, a running scheduler, and the pod default/web on one of them."""
    with Stage(tmp_path_factory.mktemp("stage"), ["n1", "n2"]) as made:
        made.create_pod("web")
        until(lambda: "default/web" in made.get("/debug/decisions")[2], "decision")
        until(lambda: '"bound_to"' in made.get("/explain?pod=default/web")[2], "binding")
        yield made


def carico(stage: Stage, *words: str, path: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("CARICO_SERVER", "KUBECONFIG")}
    env |= {"KUBECONFIG": str(stage.kubeconfig), "PATH": path or env["PATH"]} | environ
    command = [sys.executable, "-m", "carico.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)


def server(stage: Stage) -> str:
    return f"127.0.0.1:{stage.page_port}"


# --- names and forms ---


@pytest.mark.parametrize(
    "words",
    [["web"], ["pod/web"], ["pod", "web"], ["pods/web", "-n", "default"], ["default/web"], ["pod", "default/web"]],
)
def test_a_pod_may_be_named_in_every_form(stage: Stage, words: list[str]) -> None:
    done = carico(stage, "explain", *words, "--server", server(stage))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("default/web, profile carico, 1 unit\nruns on n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["deployment", "web"], "'deployment web' is not a pod; write it like web, pod/web or NAMESPACE/web"),
        (["a/b/c"], "'a/b/c' is not a pod"),
        (["team/web", "-n", "other"], "'team/web' and --namespace other are two namespaces; name one"),
        (["Web?x=1"], "'Web?x=1' is not a valid name in Kubernetes"),
    ],
)
def test_what_is_no_pod_is_refused(stage: Stage, words: list[str], message: str) -> None:
    done = carico(stage, "explain", *words, "--server", server(stage))
    assert done.returncode == 2
    assert message in done.stderr


def test_the_namespace_is_that_of_the_context(stage: Stage, tmp_path: Path) -> None:
    config = json.loads(stage.kubeconfig.read_text())
    context = config["contexts"][0]["context"]
    config["contexts"].append({"name": "other", "context": context | {"namespace": "team"}})
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    where = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--server", server(stage))
    assert carico(stage, "explain", "web", *where).returncode == 0
    done = carico(stage, "explain", "web", *where, "--context", "other")
    assert (done.returncode, "team/web" in done.stderr) == (1, True)
    done = carico(stage, "explain", "web", *where, "--context", "none")
    assert (done.returncode, "none" in done.stderr) == (2, True)


def test_a_server_of_the_environment_may_be_that_of_another_cluster(stage: Stage) -> None:
    """It stays set in the shell in which an embedded cluster was created."""
    named, warning = ("--kubeconfig", str(stage.kubeconfig)), "not that of --kubeconfig; unset $CARICO_SERVER to"
    done = carico(stage, "explain", "web", *named, CARICO_SERVER=server(stage))
    assert done.returncode == 0
    assert f"the scheduler is that of $CARICO_SERVER, http://{server(stage)}, {warning}" in done.stderr
    assert carico(stage, "explain", "web", *named, "--server", server(stage), CARICO_SERVER="x:1").stderr == ""
    assert carico(stage, "explain", "web", CARICO_SERVER=server(stage)).stderr == ""


def test_forms_of_the_answer(stage: Stage) -> None:
    def out(form: str) -> str:
        done = carico(stage, "explain", "web", "-o", form, CARICO_SERVER=server(stage))
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert json.loads(out("json"))["pod"] == yaml.safe_load(out("yaml"))["pod"] == "default/web"
    assert {"node/n1", "node/n2"} & set(out("name").split())
    assert out("wide").splitlines()[-3].split() == [
        "NODE",
        "FREE",
        "CAPACITY",
        "RESERVED",
        "REPORT",
        "ROOM",
        "SCORE",
        "VERDICT",
    ]
    hidden = carico(stage, "explain", "web", "--json", CARICO_SERVER=server(stage))
    assert json.loads(hidden.stdout)["pod"] == "default/web"


def test_decisions_of_a_pod_or_a_namespace(stage: Stage) -> None:
    def pods(*words: str) -> list[str]:
        done = carico(stage, "decisions", "-o", "json", *words, CARICO_SERVER=f"http://{server(stage)}/")
        assert done.returncode == 0, done.stderr
        return sorted({record["pod"] for record in json.loads(done.stdout)["decisions"]})

    assert pods() == pods("--pod", "web") == pods("--pod", "pod/web", "-n", "default") == ["default/web"]
    assert pods("--pod", "other") == pods("-n", "team") == []
    assert carico(stage, "decisions", "-o", "name", "--server", server(stage)).stdout == "pod/web\n"
    wide = carico(stage, "decisions", "-o", "wide", "--server", server(stage)).stdout
    assert {"PROFILE", "MICROS"} <= set(wide.splitlines()[0].split())


def test_a_pod_is_simulated_in_the_namespace_that_was_named(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        "kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: i}], schedulerName: carico}\n"
    )
    done = carico(stage, "explain", "-f", str(file), "-n", "team", "-o", "json", "--server", server(stage))
    assert json.loads(done.stdout)["pod"] == "team/x", done.stderr


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("127.0.0.1:9469", "http://127.0.0.1:9469"),
        ("localhost", "http://localhost"),
        ("[::1]:9469", "http://[::1]:9469"),
        ("https://carico.example:443/", "https://carico.example:443"),
        ("carico.example:9469", "https://carico.example:9469"),
        ("http://carico.example:9469", "http://carico.example:9469"),
    ],
)
def test_an_address_needs_no_scheme(server: str, url: str) -> None:
    assert remote.url_of(server) == url


@pytest.mark.parametrize("server", ["", "ftp://host", "host:port", "http://", "a:99999"])
def test_what_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(UsageError, match=r"write it like 127\.0\.0\.1:9469"):
        remote.url_of(server)


# --- where no server is named ---


def lease(stage: Stage, namespace: str, holder: str) -> tuple[str, str]:
    """--lease and the name of a Lease that `holder` holds."""
    name = f"lease-{holder.partition('_')[0] or 'nobody'}"
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    stage._post(LEASES.format(namespace), {"metadata": {"name": name}, "spec": spec})
    return "--lease", f"{namespace}/{name}"


def with_kubectl(folder: Path, script: str) -> str:
    """A PATH on which kubectl is `script`, and nothing else but the system's programs."""
    (folder / "kubectl").write_text(script)
    (folder / "kubectl").chmod(0o755)
    return f"{folder}:/bin"


def test_the_pod_that_holds_the_lease_is_forwarded_to(stage: Stage, tmp_path: Path) -> None:
    """It runs in another namespace than its Lease is in. kubectl is played; the scheduler behind its port is real."""
    stage._post("/api/v1/namespaces", {"metadata": {"name": "carico-system"}})
    body = {"metadata": {"name": "leader"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    stage._post("/api/v1/namespaces/carico-system/pods", body)
    log = tmp_path / "log"
    path = with_kubectl(tmp_path, FORWARDER.format(log=log, port=stage.page_port))
    chosen = lease(stage, "kube-system", "leader_2f0c")
    for command in (["explain", "web"], ["decisions"]):
        done = carico(stage, *command, *chosen, path=path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "default/web" in done.stdout
    assert log.read_text() == "-n carico-system port-forward pod/leader :9469\n" * 2
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 600" not in processes  # the forwarder has ended with the command


def test_an_error_of_kubectl_is_shown_with_the_command_to_try(stage: Stage, tmp_path: Path) -> None:
    body = {"metadata": {"name": "denied"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    stage._post("/api/v1/namespaces/default/pods", body)
    chosen = lease(stage, "default", "denied_2f0c")
    done = carico(stage, "decisions", *chosen, path=with_kubectl(tmp_path, DENIED))
    assert done.returncode == 1
    assert 'pod default/denied leads, and cannot be reached: error: pods "leader" is forbidden' in done.stderr
    assert "`kubectl -n default port-forward pod/denied 9469:9469` makes it reachable" in done.stderr


def test_without_kubectl_the_command_is_printed_and_the_rest_is_answered(stage: Stage, tmp_path: Path) -> None:
    body = {"metadata": {"name": "alone"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    stage._post("/api/v1/namespaces/default/pods", body)
    chosen = lease(stage, "default", "alone_2f0c")
    done = carico(stage, "explain", "web", *chosen, path=str(tmp_path))
    assert done.returncode == 0
    assert (
        "note: Pod-Capacity, which only a running scheduler knows, is not considered: pod default/alone" in done.stdout
    )
    assert "there is no kubectl here; `kubectl -n default port-forward pod/alone 9469:9469`" in done.stdout
    assert carico(stage, "decisions", *chosen, path=str(tmp_path)).returncode == 1


@pytest.mark.parametrize(
    ("holder", "why"),
    [
        ("", "none holds the Lease default/lease-nobody; name one with --server or $CARICO_SERVER"),
        ("another-machine_77", "another-machine_77 leads, which is not a pod"),
    ],
)
def test_without_a_leading_pod_the_error_names_that(stage: Stage, holder: str, why: str) -> None:
    done = carico(stage, "decisions", *lease(stage, "default", holder))
    assert (done.returncode, why in done.stderr) == (1, True), done.stderr


def test_without_a_cluster_it_is_one_line(tmp_path: Path, stage: Stage) -> None:
    done = carico(stage, "decisions", KUBECONFIG=str(tmp_path / "none"))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "no scheduler was found" in done.stderr


@pytest.mark.parametrize("words", [["explain", "web"], ["decisions"], ["classes"], ["doctor"]])
def test_inside_a_pod_a_credential_plugin_needs_a_flag(tmp_path: Path, stage: Stage, words: list[str]) -> None:
    plugin, ran = tmp_path / "plugin", tmp_path / "ran"
    plugin.write_text(f"#!/bin/sh\necho >> {ran}\nexit 1\n")
    plugin.chmod(0o755)
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [
            {"name": "u", "user": {"exec": {"command": str(plugin), "apiVersion": "client.authentication.k8s.io/v1"}}}
        ],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    environ = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    done = carico(stage, *words, **environ)
    assert f"would run {plugin} inside this pod; " in done.stdout + done.stderr
    assert "--exec-in-pod" in done.stdout + done.stderr
    assert not ran.exists()
    carico(stage, *words, "--exec-in-pod", **environ)
    assert ran.exists()


@pytest.mark.parametrize("command", [["explain", "web"], ["explain", "-f"], ["decisions"], ["classes"]])
def test_an_api_server_that_does_not_answer_is_one_line(tmp_path: Path, stage: Stage, command: list[str]) -> None:
    config = json.loads(stage.kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:1"}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    (tmp_path / "pod.json").write_text('{"kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": []}}')
    file = [str(tmp_path / "pod.json")] if "-f" in command else []
    done = carico(stage, *command, *file, "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "the API server at 127.0.0.1:1 cannot be reached: connection refused" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_pod_that_is_not_there_is_named_with_its_namespace(stage: Stage) -> None:
    done = carico(stage, "explain", "svc/web", "--lease", "default/none")
    assert (done.returncode, done.stderr) == (1, "carico: there is no pod svc/web\n")


def test_several_documents_are_refused_in_one_line(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("kind: Pod\n---\nkind: Pod\n")
    done = carico(stage, "explain", "-f", str(file))
    why = "expected a single document in the stream, but found another document (line 2)"
    assert (done.returncode, done.stderr) == (2, f"carico: {file}: is not a pod: {why}\n")


# --- a manifest that grows ---


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, "its aliases make more than 100,000 values of it"),
        ("a: &a [*a]\n", "an alias repeats what it stands in"),
        ("[" * 3000, "is not a pod"),
    ],
)
def test_a_manifest_that_would_grow_beyond_measure_is_refused(
    stage: Stage, tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "bomb.yaml").write_text(f"kind: Pod\n{text}" if text[0] != "[" else text)
    done = carico(stage, "explain", "-f", str(tmp_path / "bomb.yaml"), "--server", server(stage))
    assert done.returncode == 2
    assert why in done.stderr


def test_aliases_of_reasonable_size_stay() -> None:
    text = "a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}\n"
    assert bounded_yaml.load(text) == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}} == yaml.safe_load(text)


# --- a real kubelet ---


@pytest.mark.cluster
@needs_node
def test_kubectl_forwards_to_a_real_pod(node_cluster: Cluster) -> None:
    """The pod answers as a scheduler would; finding it, kubectl and the way through the kubelet are real."""
    record = json.dumps({"at": 1.0, "pod": "default/a", "uid": "u", "profile": "carico", "attempt": 1, "node": "n1"})
    serve = f"mkdir -p /tmp/w/debug && echo '{record}' > /tmp/w/debug/decisions && httpd -f -p 9469 -h /tmp/w"
    with node_cluster.namespace() as namespace:
        node_cluster.create(pod("leader", ["sh", "-c", serve]), namespace)
        path = f"/api/v1/namespaces/{namespace}/pods/leader"
        node_cluster.wait_for("the pod runs", lambda: node_cluster.api.get(path)["status"].get("phase") == "Running")
        spec: dict[str, Any] = {"holderIdentity": "leader_77", "leaseDurationSeconds": 15}
        node_cluster.api.post(LEASES.format(namespace), {"metadata": {"name": "carico"}, "spec": spec})
        command = [sys.executable, "-m", "carico.cli", "decisions", "--lease", f"{namespace}/carico"]
        command += ["--kubeconfig", str(node_cluster.kubeconfig)]

        def asked() -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, capture_output=True, text=True, timeout=120)

        node_cluster.wait_for("httpd listens", lambda: asked().returncode == 0)
        assert "default/a" in asked().stdout
