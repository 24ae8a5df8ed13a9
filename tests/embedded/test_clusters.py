"""`carico cluster` as kind is used: create, look, use, delete, and nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from carico.embedded.clusters import home

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  schedulerName: carico
  restartPolicy: Never
  containers: [{name: c, image: none, command: [sleep, "1000"]}]
"""


class Shell:
    """Calls of `carico` with a folder of its own for clusters; sockets need a short name."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cc-"))
        self.environ = {**os.environ, "XDG_STATE_HOME": str(self.folder)}
        self.environ.pop("CARICO_SERVER", None)

    def carico(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "carico.cli", *words]
        env = {**self.environ, **environ}
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)

    def processes(self) -> list[str]:
        """Command lines of whatever belongs to one of the clusters."""
        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        return [line for line in lines if str(self.folder) in line]

    def end(self) -> None:
        for name in self.carico("cluster", "list", "-o", "name").stdout.split():
            self.carico("cluster", "delete", name)
        shutil.rmtree(self.folder)


@pytest.fixture
def shell() -> Iterator[Shell]:
    made = Shell()
    try:
        yield made
    finally:
        made.end()


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_cluster_from_its_creation_to_its_end(shell: Shell) -> None:
    made = shell.carico("cluster", "create", "one", "--simulate", "2")
    assert made.returncode == 0, made.stderr
    assert made.stderr == "Creating cluster 'one' …\n"
    variables = dict(line.split()[1].split("=") for line in made.stdout.splitlines() if "export" in line)
    assert set(variables) == {"KUBECONFIG", "CARICO_SERVER"}
    [row] = json.loads(shell.carico("cluster", "list", "-o", "json").stdout)["clusters"]
    assert (row["name"], row["status"], row["nodes"]) == ("one", "running", 3)
    assert shell.carico("cluster", "kubeconfig", "one", "--path").stdout == variables["KUBECONFIG"] + "\n"
    assert shell.carico("cluster", "kubeconfig", "one").stdout == Path(variables["KUBECONFIG"]).read_text()
    again = shell.carico("cluster", "create", "one")
    assert again.returncode == 1
    assert again.stderr == "carico: cluster 'one' already exists; `carico cluster delete one` deletes it\n"
    explained = shell.carico("explain", "-f", str(written(shell, POD)), **variables)
    assert "default/web, profile carico" in explained.stdout, explained.stderr
    assert shell.carico("cluster", "delete", "one").stdout == "Deleted cluster 'one'.\n"
    assert shell.processes() == []
    assert shell.carico("cluster", "list", "-o", "name").stdout == ""
    gone = shell.carico("cluster", "delete", "one")
    assert (gone.returncode, gone.stderr) == (
        1,
        "carico: there is no cluster 'one'; `carico cluster list` lists them\n",
    )


def written(shell: Shell, text: str) -> Path:
    file = shell.folder / "pod.yaml"
    file.write_text(text)
    return file


@pytest.mark.slow
def test_its_pods_are_processes_of_this_machine_and_end_with_it(shell: Shell) -> None:
    assert shell.carico("cluster", "create").returncode == 0
    config = shell.carico("cluster", "kubeconfig", "--path").stdout.strip()
    token = str(time.time_ns())
    # Packed by requests: a machine that is busy with other tests has no capacity.
    text = POD.replace('"1000"', f'"1{token}"').replace("schedulerName: carico", "schedulerName: packed")
    kubectl = ["kubectl", "--kubeconfig", config]
    subprocess.run([*kubectl, "apply", "-f", "-"], input=text, text=True, check=True, capture_output=True)

    def sleepers() -> list[int]:
        found = psutil.process_iter(["cmdline"])
        return [process.pid for process in found if process.info["cmdline"] == ["sleep", f"1{token}"]]

    until(sleepers)
    assert shell.carico("cluster", "delete").returncode == 0
    assert not sleepers()


@pytest.mark.slow
def test_a_supervisor_that_was_killed_leaves_a_stopped_cluster_that_can_be_created_again(shell: Shell) -> None:
    assert shell.carico("cluster", "create", "two").returncode == 0
    lock = home.ClusterFolder(shell.folder / "carico" / "clusters" / "two")
    pid = lock.supervisor()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: shell.processes() == [])
    listed = shell.carico("cluster", "list").stdout.splitlines()
    assert listed[1].split()[:2] == ["two", "stopped"]
    refused = shell.carico("cluster", "kubeconfig", "two")
    assert refused.stderr == "carico: cluster 'two' does not run; `carico cluster create two` starts it\n"
    assert shell.carico("cluster", "create", "two").returncode == 0


@pytest.mark.slow
def test_a_cluster_that_cannot_start_gives_the_reason_and_leaves_nothing(shell: Shell) -> None:
    (shell.folder / "cryptography.py").write_text("raise ImportError('broken on purpose')\n")
    path = os.pathsep.join([str(shell.folder), os.environ.get("PYTHONPATH", "")])
    done = shell.carico("cluster", "create", PYTHONPATH=path)
    assert done.returncode == 1
    assert "cluster 'carico' did not start; the end of its log:" in done.stderr
    assert "broken on purpose" in done.stderr or "cryptography" in done.stderr
    assert not (shell.folder / "carico" / "clusters" / "carico").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["create", "Not A Name"], "cannot be a cluster's name"),
        (["delete", "--simulate", "3"], "--simulate 3: a number of nodes for `carico cluster create`"),
        (["list", "one"], "unexpected argument 'one'"),
        (["create", "--path"], "--path is for `carico cluster kubeconfig`"),
        (["kubeconfig", "-o", "json"], "-o json is for `carico cluster list`"),
        (["remove"], "'remove' is not one of create, delete, kubeconfig, list"),
    ],
)
def test_mistakes_are_reported_in_one_line(shell: Shell, words: list[str], says: str) -> None:
    done = shell.carico("cluster", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_that_is_too_long_for_sockets_is_refused(shell: Shell) -> None:
    done = shell.carico("cluster", "create", XDG_STATE_HOME=str(shell.folder / ("x" * 80)))
    assert done.returncode == 2
    assert "too long a path for sockets" in done.stderr
