"""Which source reports first that a pod starts or ends, and is that before the resource spike? On a real node (root).

Pods that sleep for three seconds are created one after the other on the real kubelet of the tests; they use nothing
themselves, so the kernel's counters show only the work of the container runtime. For each start and each end the
spike's rise is compared with the first event of containerd, CRI, the cgroup tree and the API server. The spike is
searched in the processor time of the runtime and its children, in a separate cgroup, and in that of the whole machine,
where it is only visible when nothing else runs. PODS sets how many pods.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.event_watch import Said, Usage, hear_containerd, hear_cri, look_at_cgroups, watch_api
from carico.recording.plot import load_pyplot
from harness.cluster.cluster import Cluster, pod
from harness.cluster.runs import processes

PODS = int(os.environ.get("PODS", "20"))
SLEEP = 3  # s that a pod runs
NAMESPACE = "default"
QUIET = 1.5  # s without any activity between two pods
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "event-lead.png"
LEAST_SPIKE = 0.05  # of all processors; a smaller rise cannot be distinguished from other work,
MOST_BEFORE = 0.3  # nor can a rise on a machine that is already busy

# In the order in which a kubelet works. Name in the figures → source and event.
START = {
    "api_bound": ("API server", "bound"),
    "cgroup_pod": ("cgroup", "pod +"),
    "containerd_create": ("containerd", "/containers/create"),
    "cgroup_container": ("cgroup", "container +"),
    "containerd_start": ("containerd", "/tasks/start"),
    "cri_created": ("CRI", "CONTAINER_CREATED_EVENT"),
    "cri_started": ("CRI", "CONTAINER_STARTED_EVENT"),
    "api_running": ("API server", "Running"),
}
STOP = {
    "containerd_exit": ("containerd", "/tasks/exit"),
    "cri_stopped": ("CRI", "CONTAINER_STOPPED_EVENT"),
    "cgroup_gone": ("cgroup", "container -"),
    "api_succeeded": ("API server", "Succeeded"),
}


class Spike(NamedTuple):
    rise: float  # s, monotonic, when usage passed the middle between before and peak
    peak: float  # s
    height: float  # of all processors, above the level before


class Change(NamedTuple):
    """One start or one end of a pod."""

    first: dict[str, float]  # name of the signal → s, monotonic, of its first event
    spikes: dict[str, Spike]  # of the "runtime" and of the whole "machine", if clear


def run() -> dict[str, float]:
    with Cluster(kubelet=True) as cluster:
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        cluster.wait_for("account of the pods", lambda: cluster.api.get(accounts)["items"])
        said, usage, spans = asyncio.run(_observe(cluster))
    figures: dict[str, float] = {"pods": PODS}
    profiles = []
    for kind, signals, position in (("start", START, 0), ("stop", STOP, 1)):
        changes = [_change(said, usage, signals, *span[position]) for span in spans]
        figures |= _report(kind, signals, changes)
        profiles.append((kind, signals, changes))
    _draw(usage, profiles)
    return figures


async def _observe(cluster: Any) -> tuple[list[Said], Usage, list[Any]]:
    said: list[Said] = []
    socket = cluster.folder / "containerd.sock"
    usage = Usage(_runtime_in_own_cgroup(cluster))

    def note(source: str, what: str) -> None:
        said.append(Said(time.monotonic(), source, what))

    listeners = [
        asyncio.create_task(listener)
        for listener in (
            hear_containerd(socket, note),
            hear_cri(socket, note),
            look_at_cgroups(_cgroup(cluster, "memory") / "kubepods" / "besteffort", note),
            watch_api(cluster.kubectl_binary, cluster.kubeconfig, NAMESPACE, note),
            usage.follow(),
        )
    ]
    spans = [await asyncio.to_thread(_one_pod, cluster, number, said) for number in range(PODS)]
    for listener in listeners:
        listener.cancel()
    for outcome in await asyncio.gather(*listeners, return_exceptions=True):
        if not isinstance(outcome, asyncio.CancelledError):
            raise RuntimeError(f"a listener ended before its time: {outcome!r}")
    return said, usage, spans


def _cgroup(cluster: Any, controller: str) -> Path:
    """The cluster's branch of the cgroup tree: in version 1 there is one tree per controller."""
    top = Path("/sys/fs/cgroup")
    own: Path = (top / controller if (top / controller).is_dir() else top) / cluster.run.cgroup
    return own


def _runtime_in_own_cgroup(cluster: Any) -> Path:
    """Move containerd, and so all its future children, into a cgroup that accounts their processor time."""
    group = _cgroup(cluster, "cpuacct") / "runtime"
    group.mkdir()
    command = str(cluster.folder / "containerd.toml").encode()
    for pid in processes(cluster.run):
        if command in Path(f"/proc/{pid}/cmdline").read_bytes():
            (group / "cgroup.procs").write_text(str(pid))
    return group


def _one_pod(cluster: Any, number: int, said: list[Said]) -> Any:
    """Create a pod, wait for its end and delete it; returns the spans of its start and of its end."""
    time.sleep(QUIET + random.Random(number).random())  # the kubelet polls once a second: vary the phase
    node = cluster.api.get("/api/v1/nodes")["items"][0]["metadata"]["name"]
    created = time.monotonic()
    cluster.create(pod(f"p{number}", ["sleep", str(SLEEP)], nodeName=node), NAMESPACE)
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/p{number}"
    cluster.wait_for("pod ends", lambda: cluster.api.get(path)["status"]["phase"] == "Succeeded")
    time.sleep(QUIET)
    cluster.api.delete(path)
    exits = [one.at for one in said if one.what == "/tasks/exit" and one.at > created]
    return (created, created + SLEEP - 0.5), (exits[0] - 0.3, exits[0] + 0.6)


def _change(said: list[Said], usage: Usage, signals: dict[str, Any], start: float, end: float) -> Change:
    first: dict[str, float] = {}
    for at, source, what in said:
        if start - 0.1 <= at <= end + 3:
            for name in (name for name, words in signals.items() if words == (source, what)):
                first.setdefault(name, at)
    spikes = {of: _spike(usage, of, start, end) for of in ("runtime", "machine")}
    return Change(first, {of: spike for of, spike in spikes.items() if spike is not None})


def _spike(usage: Usage, of: str, start: float, end: float) -> Spike | None:
    before = float(np.median(usage.between(of, start - 1.0, start)[1]))
    times, used = usage.between(of, start, end)
    top = int(np.argmax(used))
    height = float(used[top]) - before
    if height < LEAST_SPIKE or before > MOST_BEFORE:
        return None
    low = np.nonzero(used[: top + 1] < before + height / 2)[0]
    return Spike(float(times[low[-1] if len(low) else 0]), float(times[top]), height)


def _report(kind: str, signals: dict[str, Any], changes: list[Change]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for of in ("runtime", "machine"):
        heights = [change.spikes[of].height for change in changes if of in change.spikes]
        figures[f"{kind}_{of}_spikes"] = len(heights)
        median = f", median height {np.median(heights):.2f} of all processors" if heights else ""
        print(f"\n{kind}, spike of the {of}: {len(heights)} of {len(changes)} clear{median}")
        if heights:
            figures |= _table(f"{kind}_{of}", signals, of, changes)
    return figures


def _table(prefix: str, signals: dict[str, Any], of: str, changes: list[Change]) -> dict[str, float]:
    figures: dict[str, float] = {}
    print("| first event | lead over the spike's rise, ms: median (quartiles) | came before the peak |")
    print("| --- | --- | --- |")
    for name, (source, what) in signals.items():
        pairs = [(one.first[name], one.spikes[of]) for one in changes if name in one.first and of in one.spikes]
        if not pairs:
            continue
        low, middle, high = np.percentile([1e3 * (spike.rise - at) for at, spike in pairs], (25, 50, 75))
        early = sum(at < spike.peak for at, spike in pairs)
        print(f"| {source} `{what}` | {middle:+.0f} ({low:+.0f} … {high:+.0f}) | {early} of {len(pairs)} |")
        figures[f"{prefix}_{name}_lead_ms"] = round(float(middle), 1)
        figures[f"{prefix}_{name}_before_peak"] = early
    return figures


def _draw(usage: Usage, profiles: list[Any]) -> None:
    """The mean usage of the runtime around containerd's first event, and the times of the other events."""
    plot = load_pyplot()
    figure, axes = plot.subplots(len(profiles), 1, figsize=(9, 7), constrained_layout=True)
    grid = np.arange(-0.6, 2.0, 0.02)
    for axis, (kind, signals, changes) in zip(axes, profiles, strict=True):
        anchor = next(name for name in signals if name.startswith("containerd"))
        zeros = [change.first[anchor] for change in changes if anchor in change.first]
        usages = [np.interp(zero + grid, *usage.between("runtime", zero - 1, zero + 2.2)) for zero in zeros]
        axis.fill_between(grid, np.mean(usages, axis=0), color="0.8", label="runtime's share of all processors, mean")
        for number, (name, (source, what)) in enumerate(signals.items()):
            offsets = [one.first[name] - one.first[anchor] for one in changes if {name, anchor} <= one.first.keys()]
            if offsets:
                axis.axvline(np.median(offsets), color=f"C{number}", label=f"{source} {what}")
        axis.set(
            title=f"{kind} of a pod, {len(zeros)} times", xlabel="s after containerd's first event", ylabel="share"
        )
        axis.legend(fontsize="small")
    figure.savefig(PICTURE, dpi=80)
    plot.close(figure)
