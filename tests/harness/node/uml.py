"""Another kernel as one process: User-Mode Linux, which has the cgroup v2 controllers that this machine may lack.

Its root is this machine's file system; what it writes outside of its own mounts is written here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 300.0  # s; it takes ten on an idle machine
SAYS = "carico-uml: "  # prefix of the line with the program's result

INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo "+cpu +memory" > /sys/fs/cgroup/cgroup.subtree_control
cd {root}
PYTHONPATH={root} PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 {python} {program} 2>&1
halt -f -p
"""


def run(program: Path, folder: Path) -> dict[str, Any]:
    """Boot a kernel that runs a Python program and ends; returns what the program printed as JSON after SAYS."""
    init = folder / "init"
    init.write_text(INIT.format(root=ROOT, python=sys.executable, program=program))
    init.chmod(0o755)
    kernel = shutil.which("linux.uml")
    assert kernel is not None
    words = ["mem=512M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", f"init={init}", "quiet"]
    done = subprocess.run(
        [kernel, *words, "con=null", "con0=null,fd:1", f"uml_dir={folder}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    said = [line.partition(SAYS)[2] for line in done.stdout.splitlines() if SAYS in line]
    assert said, f"the program printed no result:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    result: dict[str, Any] = json.loads(said[-1])
    return result
