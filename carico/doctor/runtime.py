"""What can count pods on this machine: containerd, another CRI runtime, or the kubepods cgroups."""

from __future__ import annotations

from pathlib import Path

from carico.doctor.finding import OK, Finding, ok, problem
from carico.errors import SourceError, SourceMissing
from carico.runtime.cgroups import kubepods
from carico.runtime.channel import probe
from carico.settings import AgentSettings


async def look(settings: AgentSettings) -> list[Finding]:
    kind = settings.runtime
    if kind == "none":
        return [ok("pods", "are not counted: runtime is none")]
    found = {
        "containerd": await _socket(
            "containerd", settings.containerd_socket, "--containerd-socket", kind == "containerd"
        ),
        "cri": await _socket("cri", settings.cri_socket, "--cri-socket", kind == "cri"),
        "cgroup": _kubepods(settings.cgroup_root, kind == "cgroup"),
    }
    if kind != "auto":
        return [found[kind]]
    usable = next((name for name, finding in found.items() if finding.state == OK), None)
    if usable is not None:
        return [ok("pods", f"are counted by {usable}; {found[usable].found}")]
    fix = "run the agent on a node of Kubernetes; `carico demo` brings a node of its own"
    return [problem("pods", "no source here can count them", fix, needed=False), *found.values()]


async def _socket(part: str, path: Path, flag: str, needed: bool) -> Finding:
    try:
        await probe(path)
    except SourceMissing as error:
        return problem(part, str(error), f"start it, or name its socket with {flag}", needed=needed)
    except SourceError as error:
        words, _, fix = str(error).partition("; ")
        return problem(
            part, words, fix or f"look at the runtime's log, or name another socket with {flag}", needed=needed
        )
    return ok(part, f"listens on {path}")


def _kubepods(root: Path, needed: bool) -> Finding:
    try:
        return ok("kubepods", f"pods are under {kubepods(root)}")
    except SourceError as error:
        return problem(
            "kubepods",
            str(error),
            "this is where a kubelet keeps its pods; name the tree with --cgroup-root",
            needed=needed,
        )
