"""The agent's reports against what real pods measure themselves, with a real kubelet and containerd (root).

Pods of nine kinds start and end in random order: one (`pi`), two and four busy threads, memory touched at once, slowly
and under a limit, five seconds of work and then sleep, work under a cpu limit, and one whose image cannot be pulled.
The agent's class costs are compared with what the pods measured themselves, and its room with full − Σ of those − what
the idle node used. Ten minutes; SECONDS shortens it. The machine must be otherwise idle. TRACE names a file into which
each second is written as CSV: room and truth per resource, and the running pods.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.node.real_node import measure

SECONDS = float(os.environ.get("SECONDS", "600"))
SEED = int(os.environ.get("SEED", "1"))
TRACE = os.environ.get("TRACE", "")


def run() -> dict[str, float]:
    return measure(SECONDS, SEED, Path(TRACE) if TRACE else None)
