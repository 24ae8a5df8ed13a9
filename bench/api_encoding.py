"""What it costs to encode a Binding, an Event and a series of Events for the API server, in protobuf.

CPU time of this process, the median of several rounds; the sizes are those of the whole body.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from carico.kube import protobuf

ROUNDS, AT_ONCE = 15, 5000
NAME, NAMESPACE, UID = "job-7-x8z2k-worker-0001", "team-a", "0b7e1c5c-8f6e-4f1e-9d1b-3c9b8a7d6e5f"
NODE = "ip-10-2-33-44.eu-central-1.compute.internal"
POD = {"apiVersion": "v1", "kind": "Pod", "name": NAME, "namespace": NAMESPACE, "uid": UID, "resourceVersion": "123456"}
BINDING: dict[str, Any] = {
    "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": UID},
    "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
}
EVENT: dict[str, Any] = {
    "metadata": {"name": f"{NAME}.17f", "namespace": NAMESPACE},
    "eventTime": "2026-01-02T03:04:05.678901Z",
    "type": "Normal",
    "reason": "Scheduled",
    "action": "Binding",
    "note": f"Successfully assigned {NAMESPACE}/{NAME} to {NODE}",
    "regarding": POD,
    "reportingController": "carico-scheduler",
    "reportingInstance": f"carico-scheduler-host_{UID}",
}
SERIES = EVENT | {"series": {"count": 300, "lastObservedTime": "2026-01-02T03:09:05.678901Z"}, "related": POD}
CASES = {
    "binding": (protobuf.BINDING, BINDING),
    "event": (protobuf.EVENT, EVENT),
    "series": (protobuf.EVENT, SERIES),
}


def run() -> dict[str, object]:
    rounds: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(ROUNDS):
        for name, (kind, obj) in CASES.items():
            rounds[name].append(_microseconds(kind, obj))
    figures: dict[str, object] = {}
    print(f"{'':<10}{'CPU µs':>8}{'bytes':>8}")
    for name, (kind, obj) in CASES.items():
        spent, size = statistics.median(rounds[name]), len(protobuf.write(kind, obj))
        print(f"{name:<10}{spent:>8.2f}{size:>8}")
        figures |= {f"{name}_us": round(spent, 2), f"{name}_bytes": size}
    return figures


def _microseconds(kind: protobuf.ProtobufKind, obj: dict[str, Any]) -> float:
    began = time.process_time()
    for _ in range(AT_ONCE):
        protobuf.write(kind, obj)
    return (time.process_time() - began) / AT_ONCE * 1e6
