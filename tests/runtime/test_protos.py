"""The committed code is generated from protos/, and protos/ match those of containerd and Kubernetes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from carico.runtime.api import containerd_events_pb2, containerd_types_pb2

ROOT = Path(__file__).resolve().parents[2]


def test_the_generated_code_is_fresh() -> None:
    done = subprocess.run([ROOT / "tools" / "protos.sh", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_event_as_containerd_1_6_sent_it() -> None:
    """Bytes of a task's exit: an envelope whose name has changed since, and a payload that has not."""
    exit_ = b"\x0a\x03box\x12\x03box\x18\x2a\x20\x89\x01"
    payload = b"\x0a\x1acontainerd.events.TaskExit\x12" + bytes([len(exit_)]) + exit_
    raw = b"\x12\x06k8s.io\x1a\x0b/tasks/exit\x22" + bytes([len(payload)]) + payload
    envelope = containerd_types_pb2.Envelope.FromString(raw)
    event = containerd_events_pb2.TaskExit.FromString(envelope.event.value)
    assert (envelope.namespace, envelope.topic) == ("k8s.io", "/tasks/exit")
    assert (event.container_id, event.id, event.pid, event.exit_status) == ("box", "box", 42, 137)
