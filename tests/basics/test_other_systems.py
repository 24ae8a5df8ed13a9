"""Commands on macOS and Windows: played by a Python that lacks what those lack, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carico.cli import COMMANDS, main
from carico.system import ANYWHERE
from harness.embedded.embedded_cluster import EmbeddedCluster

CHECKOUT = Path(__file__).parents[2]

# Other people's modules are loaded first: they know their way on every system, but not halfway through one.
PLAYED = """
import asyncio, builtins, ctypes, os, select, selectors, signal, socket, subprocess, sys, urllib.request
import grpc, grpc.aio, msgspec, numpy, prometheus_client, yaml

here = {system!r}
missing = {{"uvloop"}} | ({{"fcntl", "resource", "termios", "tty", "pwd", "grp"}} if here == "win32" else set())
real = builtins.__import__

def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    if name in missing and (globals or {{}}).get("__name__", "").startswith("carico"):
        raise ModuleNotFoundError(f"No module named {{name!r}} on {{here}}")
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = guarded
for module, names in {{
    os: ["sched_getaffinity", "pidfd_open", "memfd_create", "eventfd"] + ["getuid", "sysconf"] * (here == "win32"),
    signal: ["pidfd_send_signal"] + ["SIGUSR1", "SIGUSR2", "SIGHUP", "SIGPIPE"] * (here == "win32"),
    select: ["epoll"],
}}.items():
    for name in names:
        delattr(module, name)
os.process_cpu_count = os.cpu_count  # from Python 3.13 on; on Linux it asks for the affinity
if here == "win32":
    ctypes.CDLL = None
sys.platform = here
from carico.cli import main
sys.exit(main(sys.argv[1:]))
"""

systems = pytest.mark.parametrize("system", ["darwin", "win32"])


def carico(system: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PLAYED.format(system=system), *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"NO_COLOR": "1"})


@systems
@pytest.mark.parametrize("command", sorted(set(COMMANDS) - set(ANYWHERE)))
def test_what_needs_linux_says_so_in_one_sentence(
    system: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setitem(sys.modules, f"carico.commands.{command.replace('-', '_')}", None)  # cannot be imported
    assert main([command]) == (255 if command == "run" else 2)
    works = "explain, decisions, classes, replay, version and completion work here"
    said = f"carico: `carico {command}` needs Linux, and this system is {system}; {works}\n"
    assert capsys.readouterr() == ("", said)


@systems
def test_completion_offers_what_works(system: str) -> None:
    done = carico(system, "completion", "bash")
    assert done.returncode == 0, done.stderr
    assert "explain" in done.stdout
    assert "aggregator" not in done.stdout


@systems
def test_a_recording_and_decisions_can_be_read(system: str, tmp_path: Path) -> None:
    replayed = carico(system, "replay", str(CHECKOUT / "docs" / "recordings" / "pods.rec"))
    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stdout
    dump = tmp_path / "dump"
    dump.write_text("")
    assert carico(system, "decisions", str(dump)).stderr.count("Traceback") == 0
    assert carico(system, "--version").returncode == 0


@systems
def test_a_cluster_can_be_asked(system: str, tmp_path: Path) -> None:
    cluster = EmbeddedCluster(tmp_path, nodes=2)
    try:
        where = ("--kubeconfig", str(cluster.kubeconfig))
        pod = {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        cluster.create(pod)
        (tmp_path / "pod.json").write_text(json.dumps(pod))
        explained = carico(system, "explain", "pod", "default/web", *where)
        assert "kwok-0001" in explained.stdout, explained.stderr
        simulated = carico(system, "explain", "-f", str(tmp_path / "pod.json"), *where)
        assert "kwok-0001" in simulated.stdout, simulated.stderr
        classes = carico(system, "classes", *where)
        assert classes.returncode == 1
        assert classes.stderr.startswith("carico: no scheduler was found: "), classes.stderr
        assert len(classes.stderr.splitlines()) == 1
    finally:
        cluster.stop()
