"""The program of one pod of real_node.py: loads its node as configured, and measures itself.

Runs on the machine's Python, without any package. Every second it records the monotonic clock, the time that its
processes ran and waited (schedstat of the kernel) and its anonymous memory; at the end also the processor time by
getrusage. /proc is the node's, in which processes have other numbers than in their PID namespace.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time

SECOND = 1.0


def main() -> None:
    plan = json.loads(sys.argv[1])
    started = time.monotonic()
    children = [busy(started + plan["burn"]) for _ in range(plan["threads"])]
    held: list[bytearray] = []
    rows: list[list[float]] = []
    stop = started + plan["life"]
    while (now := time.monotonic()) < stop:
        share = 1.0 if not plan["ramp"] else min(1.0, (now - started + SECOND) / plan["ramp"])
        touch(held, int(share * plan["mib"]))
        rows.append([now, *account(), anonymous()])
        time.sleep(max(0.0, min(SECOND, stop - time.monotonic())))
    rows.append([time.monotonic(), *account(), anonymous()])
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result = {"rows": rows, "cpu_seconds": sum(one.ru_utime + one.ru_stime for one in used), "mib": plan["mib"]}
    with open(plan["result"] + ".new", "w") as file:
        json.dump(result, file)
    os.rename(plan["result"] + ".new", plan["result"])


def busy(until: float) -> int:
    """A process that is continuously busy until then, and sleeps afterwards."""
    child = os.fork()
    if child == 0:
        while time.monotonic() < until:
            for _ in range(10000):
                pass
        time.sleep(1e6)
        os._exit(0)
    return child


def touch(held: list[bytearray], mib: int) -> None:
    while len(held) < mib:
        piece = bytearray(1 << 20)
        for at in range(0, len(piece), 4096):
            piece[at] = 1
        held.append(piece)


def account() -> tuple[float, float]:
    """s run and s waited, of this process and its children."""
    me = os.readlink("/proc/self")
    with open(f"/proc/{me}/task/{me}/children") as file:
        pids = [me, *file.read().split()]
    ran = waited = 0
    for pid in pids:
        with open(f"/proc/{pid}/schedstat") as file:
            words = file.read().split()
        ran, waited = ran + int(words[0]), waited + int(words[1])
    return ran * 1e-9, waited * 1e-9


def anonymous() -> int:
    """Bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon:"))


if __name__ == "__main__":
    main()
