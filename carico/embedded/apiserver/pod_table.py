"""A pod as one row of `kubectl get pods`, with kube-apiserver's one-word state."""

from __future__ import annotations

from typing import Any

from carico.embedded.apiserver.ages import since
from carico.embedded.apiserver.history import Plain

NONE = "<none>"


def cells(pod: Plain, now: float) -> list[Any]:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    inits = status.get("initContainerStatuses") or []
    ready = sum(1 for one in statuses if one.get("ready") and "running" in (one.get("state") or {}))
    restarts = sum(one.get("restartCount", 0) for one in [*inits, *statuses])
    ips = [ip.get("ip") for ip in status.get("podIPs") or []] or [status.get("podIP")]
    return [
        meta["name"],
        f"{ready}/{len(spec['containers'])}",
        state(pod),
        _restarts(restarts, statuses, now),
        since(meta.get("creationTimestamp"), now),
        ips[0] or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        NONE,
    ]


def _restarts(count: int, statuses: list[Plain], now: float) -> str:
    ends = [((one.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for one in statuses]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({since(last, now)} ago)" if count and last else str(count)


def state(pod: Plain) -> str:
    """
    >>> state({"metadata": {}, "spec": {}, "status": {"phase": "Running", "containerStatuses": [
    ...     {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}})
    'CrashLoopBackOff'
    """
    status = pod.get("status") or {}
    word = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    word = _initialising(pod, status) or _containers(status, word)
    if "deletionTimestamp" in pod["metadata"] and status.get("phase") not in ("Succeeded", "Failed"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return word


def _initialising(pod: Plain, status: Plain) -> str:
    for i, one in enumerate(status.get("initContainerStatuses") or []):
        ended = (one.get("state") or {}).get("terminated")
        waits = ((one.get("state") or {}).get("waiting") or {}).get("reason")
        if ended is not None:
            if ended.get("exitCode") == 0:
                continue
            return f"Init:{_ended(ended)}"
        if waits and waits != "PodInitializing":
            return f"Init:{waits}"
        return f"Init:{i}/{len(pod['spec'].get('initContainers') or [])}"
    return ""


def _containers(status: Plain, word: str) -> str:
    running = False
    for one in reversed(status.get("containerStatuses") or []):
        now = one.get("state") or {}
        if reason := (now.get("waiting") or {}).get("reason"):
            word = reason
        elif now.get("terminated") is not None:
            word = _ended(now["terminated"])
        elif one.get("ready") and now.get("running") is not None:
            running = True
    if word == "Completed" and running:
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or [])
        return "Running" if ready else "NotReady"
    return word


def _ended(terminated: Plain) -> str:
    if reason := terminated.get("reason"):
        return str(reason)
    if signal := terminated.get("signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"
