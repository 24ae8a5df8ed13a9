"""Processes of a tree are found and killed."""

from __future__ import annotations

import os
import signal
import subprocess

from carico.embedded.supervisor import process_tree


def test_all_descendants_are_found_and_killed() -> None:
    command = ["sh", "-c", "setsid sleep 1000 & sleep 1000 & echo ready; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        found = process_tree.descendants(shell.pid, process_tree.living())
        assert len(found) == 2
        assert process_tree.children(shell.pid) == found
        assert process_tree.kill_all(lambda: (found | {shell.pid}) & process_tree.living().keys(), shell.poll) == set()
        assert shell.wait() == -signal.SIGKILL


def test_a_name_with_parentheses_and_spaces_does_not_shift_the_fields() -> None:
    script = "import ctypes; ctypes.CDLL(None).prctl(15, b'a) Z 1 (b'); print(flush=True); input()"
    with subprocess.Popen(["python3", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert process_tree.living()[child.pid].parent == os.getpid()
        child.kill()
