"""Processes that can be found again by a token among their arguments, and a user without rights to start them."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

import psutil

# A user without rights who may read the interpreter, wherever it is installed.
AS_USER = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all,+dac_read_search"]
AS_USER += ["--ambient-caps=-all,+dac_read_search", "--bounding-set=-all,+dac_read_search"]


def new_token() -> str:
    """Digits that can be appended to a number of seconds, and found again."""
    return f"{secrets.randbelow(10**12):012}"


def bearers_of(token: str) -> list[tuple[int, list[str]]]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if any(token in word for word in words) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append((process.pid, words))
    return found


def supervisor_groups(pid: int) -> set[str]:
    """The names of the control groups of supervisors that a process is in."""
    return set(re.findall(r"carico-[0-9a-f]{16}", Path(f"/proc/{pid}/cgroup").read_text()))


def existing(names: set[str]) -> set[str]:
    """Those control groups that are there. Others come and go meanwhile, which rglob would raise."""
    return names & {name for _, folders, _ in os.walk("/sys/fs/cgroup") for name in folders}
