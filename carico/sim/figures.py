"""The figures of one run. JCT runs from the first pod's creation to the last pod's end, PCT from a pod's start to its
end, turnaround from its creation to its end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from carico.sim.kubelet import KILLED, SUCCEEDED
from carico.sim.recorder import PodRecord, Recorder
from carico.types import Vector

ONE_THREAD, TWO_THREADS = 1.0, 2.0  # demanded busy threads per core above which a node-second is hot
RAMP = 0.95  # of the usage that the cluster reaches while its queue is full
ALL = "all pods"

Figures = dict[str, float]


def figures(recorder: Recorder) -> Figures:
    """Of all pods that end by themselves; nan where there is none."""
    pods = [pod for pod in recorder.pods.values() if pod.ends]
    return _of_pods(pods) | _of_nodes(recorder, pods) | _totals(recorder.pods.values())


def by_workload(recorder: Recorder) -> Mapping[str, Figures]:
    names = dict.fromkeys(pod.workload for pod in recorder.pods.values())
    return {name: _of_pods([pod for pod in recorder.pods.values() if pod.workload == name]) for name in names}


def _of_pods(pods: list[PodRecord]) -> Figures:
    ended = [pod for pod in pods if pod.outcome == SUCCEEDED]
    completion = np.array([pod.ended - pod.running for pod in ended])
    turnaround = np.array([pod.ended - pod.created for pod in ended])
    slowdown = turnaround / np.array([pod.ideal for pod in ended]) if ended else turnaround
    last = max((pod.ended for pod in ended), default=math.nan)
    return {
        "jct": last - min((pod.created for pod in pods), default=math.nan),
        "pct_mean": _mean(completion),
        "pct_std": float(completion.std()) if ended else math.nan,
        "turnaround_mean": _mean(turnaround),
        "turnaround_p95": _p95(turnaround),
        "slowdown_mean": _mean(slowdown),
        "slowdown_p95": _p95(slowdown),
        "unfinished": float(sum(pod.outcome == "" for pod in pods)),
        "oom_kills": float(sum(pod.outcome == KILLED for pod in pods)),
    }


def _of_nodes(recorder: Recorder, pods: Iterable[PodRecord]) -> Figures:
    usage, threads, memory = (recorder.column(name) for name in ("usage", "threads", "memory"))
    begin, end = _window(pods)
    times = np.array(recorder.times)
    inside = (times >= begin) & (times <= end)
    return {
        "usage_mean": _mean(usage[inside].mean(axis=1)) if inside.any() else math.nan,
        "ramp": _ramp(times[inside] - begin, usage[inside]),
        "hot_two": float((threads > TWO_THREADS).sum()),
        "hot_one": float((threads > ONE_THREAD).sum()),
        "hot_memory": float((memory > 1.0).sum()),
        "memory_max": float(memory.max(initial=0.0)),
        "room_within": _room_within(recorder),
    }


def _totals(pods: Iterable[PodRecord]) -> Figures:
    return {"pods": float(sum(1 for _ in pods))}


def _window(pods: Iterable[PodRecord]) -> tuple[float, float]:
    known = list(pods)
    begin = min((pod.created for pod in known), default=-math.inf)
    end = max((pod.ended for pod in known if not math.isnan(pod.ended)), default=math.inf)
    return begin, end


def _ramp(since: Vector, usage: Vector) -> float:
    """s from the first pod until the cluster's usage is at 95 %."""
    reached = np.flatnonzero(usage.mean(axis=1) >= RAMP) if len(usage) else np.array([])
    return float(since[reached[0]]) if len(reached) else math.nan


def _room_within(recorder: Recorder) -> float:
    """The share of node-seconds in which the reported room of cpu is within 5 % of the node or 15 % of the truth."""
    room, truth = recorder.column("room"), recorder.column("true_room")
    reported = ~np.isnan(room)
    if not reported.any():
        return math.nan
    return float((np.abs(room - truth) <= np.maximum(0.05, 0.15 * truth))[reported].mean())


def _mean(values: Vector) -> float:
    return float(values.mean()) if len(values) else math.nan


def _p95(values: Vector) -> float:
    return float(np.percentile(values, 95)) if len(values) else math.nan
