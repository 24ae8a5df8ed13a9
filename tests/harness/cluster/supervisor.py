"""The outer supervisor of a cluster: it ends the cluster when the owner has ended.

Its standard input is a pipe from the owner (a pytest run, or `make cluster` while it waits). End of file means that
the owner has ended, in whatever way: remove everything. `detach` means that the cluster continues until `make
cluster-down`. When the inner process fails, processes and cgroups are removed but the folder is kept, because its logs
contain the reason.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from .daemons import die_with_parent
from .runs import MARK, Run, end_processes, remove_cgroups, sweep

SEAL = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
DETACH = b"detach\n"


def main(folder: Path, link: Path) -> None:
    run = Run(folder=folder, link=link)
    for stop in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(stop, lambda *_: sys.exit(0))
    try:
        _wait_for_failure(_start_inner(run))
    except BaseException:
        sweep(run)
        raise
    end_processes(run)
    remove_cgroups(run)


def _start_inner(run: Run) -> subprocess.Popen[bytes]:
    spec = json.loads((run.folder / "spec.json").read_text())
    seal = SEAL if spec["sealed"] else []
    inner = [sys.executable, "-m", "harness.cluster.inner", str(run.folder)]
    fds = tuple(spec["inherit"])
    return subprocess.Popen([*seal, *inner], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, pass_fds=fds)


def _wait_for_failure(inner: subprocess.Popen[bytes]) -> None:
    """Return when the inner process has failed; raise SystemExit when the owner has ended."""
    ended = os.pidfd_open(inner.pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(0, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == ended:
                return
            said = os.read(0, 64)
            if not said:
                sys.exit(0)
            if said == DETACH:
                poll.unregister(0)


if __name__ == "__main__":
    main(Path(os.environ[MARK]), Path(sys.argv[1]))
