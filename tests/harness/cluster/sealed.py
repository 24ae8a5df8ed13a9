"""Inside the namespaces: prepares them for a container runtime and a kubelet, without changing the host.

The process already has its own network, mount and PID namespaces. Here it gets a loopback, a node address from which
every packet is routable and none can leave, private copies of the folders that the components write to, and private
values of the kernel settings that a kubelet would otherwise change for the whole machine.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .errors import ClusterError
from .runs import Run, hierarchies

# Benchmarking range of RFC 2544: never used in a real network.
NODE_ADDRESS = "198.18.0.1"
# kubelet writes these unless they have these values. They are not namespaced, so it must find them already set.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def arrange(run: Run) -> None:
    """Prepare the namespaces for containerd and kubelet."""
    command("mount", "--make-rshared", "/")  # as systemd does; `unshare` has cut it off from the host's mounts
    _cover_folders()
    _pin_kernel_settings()
    _network()
    _cgroups(run)


def command(*argv: str) -> str:
    """Run a system program; its standard error becomes the error."""
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(argv)}: {done.stderr.strip() or f'ended with code {done.returncode}'}")
    return done.stdout


def _cover_folders() -> None:
    """Private /run, and overlays on /var/lib and /var/log: readable as before, written to memory only."""
    command("mount", "-t", "tmpfs", "-o", "mode=755", "carico", "/run")
    for folder in ("/var/lib", "/var/log"):
        parts = Path("/run/carico") / folder.replace("/", "-").strip("-")
        for name in ("upper", "work"):
            (parts / name).mkdir(parents=True)
        layers = f"lowerdir={folder},upperdir={parts / 'upper'},workdir={parts / 'work'}"
        command("mount", "-t", "overlay", "-o", layers, "carico", folder)


def _pin_kernel_settings() -> None:
    pinned = Path("/run/carico/settings")
    pinned.mkdir()
    for name, value in KERNEL_SETTINGS.items():
        file = pinned / name.replace("/", ".")
        file.write_text(f"{value}\n")
        if (Path("/proc/sys") / name).exists():
            command("mount", "--bind", str(file), f"/proc/sys/{name}")


def _network() -> None:
    """A veth pair replaces the network card: `dummy` devices are not in every kernel."""
    command("ip", "link", "set", "lo", "up")
    command("ip", "link", "add", "node0", "type", "veth", "peer", "name", "wire0")
    command("ip", "addr", "add", f"{NODE_ADDRESS}/32", "dev", "node0")
    for device in ("node0", "wire0"):
        command("ip", "link", "set", device, "up")
    command("ip", "route", "add", "default", "dev", "node0")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _cgroups(run: Run) -> None:
    """Namespaces do not split the cgroup tree, so each cluster gets a separate branch in every hierarchy."""
    for top in hierarchies():
        cgroup = top / run.cgroup
        cgroup.mkdir(exist_ok=True)
        controllers = cgroup / "cgroup.controllers"
        if controllers.exists():  # version 2: enable all controllers that the parent enabled
            wanted = " ".join(f"+{name}" for name in controllers.read_text().split())
            (cgroup / "cgroup.subtree_control").write_text(wanted)
        elif (cgroup / "cpuset.cpus").exists():  # version 1: a group with an empty cpuset accepts no process
            for name in ("cpuset.cpus", "cpuset.mems"):
                (cgroup / name).write_text((top / name).read_text())


def enter(pid: int, argv: list[str]) -> list[str]:
    """The command line that runs `argv` inside the namespaces whose first process is `pid`."""
    return ["nsenter", "-t", str(pid), "-n", "-m", "-p", f"--wd={os.getcwd()}", *argv]
