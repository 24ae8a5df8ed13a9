"""Which pods run on this node, whether the runtime is busy, and what each pod uses.

Pods
    pods.py         the pod table: state without I/O
    auto.py         selects the best available source
    containerd.py   source: containerd's events and listings
    cri.py          source: any CRI runtime, mainly CRI-O
    cgroups.py      source: the kubepods cgroup tree
    cgroup_notifier.py  early churn warning from the creation of pod cgroups
    list_watcher.py  subscribe, list, handle events, reconnect
    channel.py      gRPC over a unix socket
    traits.py       pod and class from the fields of a sandbox
    api/            generated from protos/carico/runtime/api

Use of pods
    meter.py        use and demand of each pod
    demand.py       demand from two readings of a pod's counters
    ending.py       recognises pods that have ended before the runtime reports it
    pod_cgroups.py  finds the cgroup of a pod
    cri_stats.py    counters from a CRI runtime's statistics
"""

from __future__ import annotations

from pathlib import Path

from carico.clock import Clock
from carico.runtime.auto import AutoSource, NoSource, RuntimeSource
from carico.runtime.cgroup_notifier import CgroupNotifier
from carico.runtime.cgroups import CgroupSource
from carico.runtime.containerd import containerd
from carico.runtime.cri import cri
from carico.runtime.pod_cgroups import PodCgroups
from carico.runtime.pods import PodTable
from carico.settings import RuntimeSettings

__all__ = ["PodTable", "RuntimeSource", "open_source"]


def open_source(
    settings: RuntimeSettings, cgroup_root: Path, clock: Clock, proc_root: Path = Path("/proc")
) -> RuntimeSource:
    """The source that the settings select; nothing is read before `run`."""
    table = PodTable(settings)
    cgroups = PodCgroups(cgroup_root, proc_root)
    match settings.runtime:
        case "containerd":
            return CgroupNotifier(containerd(settings.containerd_socket, table, clock, cgroups), cgroup_root, clock)
        case "cri":
            return CgroupNotifier(cri(settings.cri_socket, table, clock, cgroups), cgroup_root, clock)
        case "cgroup":
            return CgroupSource(cgroup_root, table, clock)
        case "none":
            return NoSource(table, clock)
        case _:
            return CgroupNotifier(AutoSource(settings, cgroup_root, table, clock, cgroups), cgroup_root, clock)
