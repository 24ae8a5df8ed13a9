"""The inner process of a cluster: starts the components in order, waits for each, then watches them.

It reports its progress to the owner in the file `progress` of the run's folder; the last line is `ready`, or `failed`
with the reason.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from . import containerd, controlplane, kwok, node, sealed
from .daemons import Daemons
from .errors import ClusterError
from .runs import MARK, Run

READY = "ready"
FAILED = "failed: "


class Progress:
    """Lines of `seconds text`, for the owner to read while it waits."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        with self._file.open("a") as out:
            out.write(json.dumps([round(time.monotonic() - self._began, 2), text]) + "\n")


def main(folder: Path) -> None:
    progress = Progress(folder / "progress")
    spec = json.loads((folder / "spec.json").read_text())
    run = Run(folder=folder, link=Path(spec["link"]))
    daemons = Daemons(folder / "logs", run.held)
    try:
        _start(run, spec, daemons, progress)
        progress.say(READY)
        _watch(daemons)
    except (ClusterError, OSError) as error:
        progress.say(f"{FAILED}{error}")
        sys.exit(1)


def _start(run: Run, spec: dict[str, Any], daemons: Daemons, progress: Progress) -> None:
    """Start everything in order. A real node and kwok nodes can be in one cluster."""
    binaries = spec["binaries"]
    if spec["sealed"]:
        sealed.arrange(run)
        progress.say("own network, mounts and processes")
    if spec["containerd"]:
        containerd.start(run, daemons, spec["containerd"], binaries)
        progress.say(f"containerd {spec['containerd']} with images")
    if not spec["control_plane"]:
        return
    address = sealed.NODE_ADDRESS if spec["sealed"] else None
    options = controlplane.Options(spec["user_port"], spec["extenders"], spec["audited"])
    plane = controlplane.start(run, daemons, binaries, spec["nodes"], address, options)
    if spec["sealed"]:
        _forward(spec, plane, daemons)
    progress.say("API server ready")
    if spec["sealed"]:
        node.start(run, plane, daemons, binaries)
        progress.say("real node Ready")
    if spec["nodes"]:
        kwok.start(plane, daemons, binaries["kwok"], spec["nodes"])
        progress.say(f"{spec['nodes']} kwok nodes Ready")
    daemons.wait_for("the default service account", lambda: controlplane.has_default_account(plane.api))


def _forward(spec: dict[str, Any], plane: controlplane.ControlPlane, daemons: Daemons) -> None:
    (listener,) = spec["inherit"]
    port = plane.server.rpartition(":")[2]
    daemons.start(
        "forward", [sys.executable, "-m", "harness.cluster.forward", str(listener), port], pass_fds=(listener,)
    )


def _watch(daemons: Daemons) -> None:
    while True:
        daemons.reap()
        daemons.revive()
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(os.environ[MARK]))
