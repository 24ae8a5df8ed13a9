"""1b: who runs here, and is the runtime busy.

pods        the table: state without I/O           auto      takes the best source there is
containerd  its own events and listings            follow    subscribe, list, hear, start again
cri         any CRI runtime, CRI-O above all       channel   gRPC over a unix socket
cgroups     the kubepods cgroup tree               api/      generated from protos/carico/runtime/api
"""

from __future__ import annotations

from pathlib import Path

from carico.clock import Clock
from carico.runtime.announce import Announced
from carico.runtime.auto import AutoSource, NoSource, Source
from carico.runtime.cgroups import CgroupSource
from carico.runtime.containerd import containerd
from carico.runtime.cri import cri
from carico.runtime.pods import PodTable
from carico.settings import RuntimeSettings

__all__ = ["PodTable", "Source", "open_source"]


def open_source(settings: RuntimeSettings, cgroup_root: Path, clock: Clock) -> Source:
    """The source that the settings ask for; nothing is read before `run`."""
    table = PodTable(settings)
    match settings.runtime:
        case "containerd":
            return Announced(containerd(settings.containerd_socket, table, clock), cgroup_root, clock)
        case "cri":
            return Announced(cri(settings.cri_socket, table, clock), cgroup_root, clock)
        case "cgroup":
            return CgroupSource(cgroup_root, table, clock)
        case "none":
            return NoSource(table, clock)
        case _:
            return Announced(AutoSource(settings, cgroup_root, table, clock), cgroup_root, clock)
