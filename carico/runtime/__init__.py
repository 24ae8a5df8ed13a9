"""1b: who runs here, and is the runtime busy.

pods         the table: state without I/O           auto      takes the best source there is
containerd   its own events and listings            follow    subscribe, list, hear, start again
cri          any CRI runtime, CRI-O above all       channel   gRPC over a unix socket
cgroups      the kubepods cgroup tree               api/      generated from protos/carico/runtime/api
traits       a sandbox's words: pod and class       meter     what each pod uses and demands
pod_cgroups  where a pod's cgroup lies              cri_stats the same by a CRI runtime's statistics
"""

from __future__ import annotations

from pathlib import Path

from carico.clock import Clock
from carico.runtime.announce import Announced
from carico.runtime.auto import AutoSource, NoSource, Source
from carico.runtime.cgroups import CgroupSource
from carico.runtime.containerd import containerd
from carico.runtime.cri import cri
from carico.runtime.pod_cgroups import PodCgroups
from carico.runtime.pods import PodTable
from carico.settings import RuntimeSettings

__all__ = ["PodTable", "Source", "open_source"]


def open_source(settings: RuntimeSettings, cgroup_root: Path, clock: Clock, proc_root: Path = Path("/proc")) -> Source:
    """The source that the settings ask for; nothing is read before `run`."""
    table = PodTable(settings)
    cgroups = PodCgroups(cgroup_root, proc_root)
    match settings.runtime:
        case "containerd":
            return Announced(containerd(settings.containerd_socket, table, clock, cgroups), cgroup_root, clock)
        case "cri":
            return Announced(cri(settings.cri_socket, table, clock, cgroups), cgroup_root, clock)
        case "cgroup":
            return CgroupSource(cgroup_root, table, clock)
        case "none":
            return NoSource(table, clock)
        case _:
            return Announced(AutoSource(settings, cgroup_root, table, clock, cgroups), cgroup_root, clock)
