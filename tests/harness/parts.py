"""Features of a machine that some tests need, and why a machine may lack them.

A test declares `@pytest.mark.needs("root", "containerd")`. If a feature is missing the test is skipped, and the closing
table shows why; under CI=true it fails instead, so that a green run there means that everything ran.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from carico.telemetry.cgroup import find_place


def _program(*names: str, package: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/lib/cni"
        absent = [name for name in names if shutil.which(name, path=path) is None]
        return f"no {', '.join(absent)} (Debian package: {package})" if absent else None

    return missing


def _root() -> str | None:
    return None if os.geteuid() == 0 else "not root"


def _psi() -> str | None:
    try:
        Path("/proc/pressure/cpu").read_bytes()
    except FileNotFoundError:
        return "no PSI: this kernel has no /proc/pressure"
    except OSError:
        return "PSI is switched off (boot with psi=1)"
    return None


def _namespaces() -> str | None:
    """A sealed node needs its own network, mount and PID namespaces, veth pairs and a bridge."""
    probe = "ip link add va type veth peer name vb && ip link add br0 type bridge && nft list ruleset"
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c", probe]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except OSError as error:
        return f"no namespaces: {error}"
    return None if done.returncode == 0 else f"no namespaces: {done.stderr.strip().splitlines()[-1:]}"


def _go() -> str | None:
    """The cluster's binaries are built from Go modules; the Go tool can be installed without root."""
    from harness.cluster import builder, gotool
    from harness.cluster.errors import ClusterError

    try:
        gotool.find(builder.cache_folder(), builder.say)
    except ClusterError as error:
        return str(error)
    return None


def _cgroup_v1() -> str | None:
    trees = [Path("/sys/fs/cgroup") / tree / "cgroup.procs" for tree in ("cpu", "cpuacct", "memory")]
    return None if all(tree.exists() for tree in trees) else "no cgroup v1 trees in /sys/fs/cgroup"


def _cgroups() -> str | None:
    own = find_place(Path("/proc"), Path("/sys/fs/cgroup"), "pids").folders[0]
    return None if os.access(own, os.W_OK) else f"control groups cannot be created in {own}"


def _cgroup_unified() -> str | None:
    folder = Path("/sys/fs/cgroup/unified")
    return None if (folder / "cgroup.controllers").exists() else f"no cgroup v2 tree at {folder} beside the v1 trees"


def _package(name: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        return None if importlib.util.find_spec(name) is not None else f"no Python package {name} (`make setup`)"

    return missing


def _traces() -> str | None:
    return None if "CARICO_TRACES" in os.environ else "CARICO_TRACES names no folder with traces"


PARTS: dict[str, Callable[[], str | None]] = {
    "root": _root,
    "psi": _psi,
    "namespaces": _namespaces,
    "cgroups": _cgroups,
    "cgroup-v1": _cgroup_v1,
    "cgroup-unified": _cgroup_unified,
    "uml": _program("linux.uml", package="user-mode-linux"),
    "containerd": _program("containerd", "ctr", "runc", package="containerd runc"),
    "go": _go,
    "kubernetes": _package("kubernetes"),
    "cni": _program("bridge", "host-local", "loopback", package="containernetworking-plugins"),
    "nftables": _program("nft", package="nftables"),
    "busybox": _program("busybox", package="busybox-static"),
    "promtool": _program("prometheus", "promtool", package="prometheus"),
    "image": _program("buildah", "debootstrap", package="buildah debootstrap"),
    "stress-ng": _program("stress-ng", package="stress-ng"),
    "tmux": _program("tmux", package="tmux"),
    "fish": _program("fish", package="fish"),
    "zsh": _program("zsh", package="zsh"),
    "chromium": _program("chromium", package="chromium"),
    "parallel": _program("parallel", package="parallel"),
    "traces": _traces,
}

# Not part of the project for legal reasons: it may be missing even under CI=true.
MAY_BE_MISSING = {"traces"}


@cache
def missing(part: str) -> str | None:
    """Why this machine lacks `part`, or None if it has it."""
    return PARTS[part]()
