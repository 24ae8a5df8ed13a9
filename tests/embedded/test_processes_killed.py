"""Nothing outlives a kill -9 of any of the processes, at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from carico.embedded.supervisor.guard import end_abandoned
from harness.embedded import families
from harness.embedded.strays import AS_USER, bearers_of, existing, new_token, supervisor_groups


@pytest.mark.slow
@pytest.mark.needs("cgroups")
@pytest.mark.parametrize("round_", range(12))
def test_nothing_survives_a_kill_at_any_moment(round_: int) -> None:
    """Kills the owner, or first its job supervisor or a job, at a random moment of a busy family's life."""
    token, rng = new_token(), random.Random(round_)
    with family_of(token) as (owner, pids):
        if round_ % 4 < 3:
            supervisor, *jobs = pids()
            time.sleep(rng.uniform(0.0, 0.3))
            os.kill([supervisor, rng.choice(jobs), owner.pid][round_ % 4], signal.SIGKILL)
            time.sleep(rng.choice([0.0, 0.001, 0.01, 0.1]))
        else:  # while it starts
            time.sleep(rng.uniform(0.0, 0.4))
        owner.kill()
        # Both supervisor and owner may have died together: then it is the next start that ends the rest.
        until_gone(token, end_abandoned if round_ % 4 == 0 else lambda: None)


@pytest.mark.slow
@pytest.mark.needs("root")
def test_nothing_survives_its_owner_without_control_groups() -> None:
    """As an ordinary user has none."""
    token = new_token()
    with family_of(token, *AS_USER) as (owner, pids):
        pids()
        owner.kill()
        until_gone(token, but=[owner.pid])


@contextlib.contextmanager
def family_of(token: str, *before: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[], list[int]]]]:
    """families.py, and a function that waits for the pids of its job supervisor and jobs."""
    command = [*before, sys.executable, families.__file__, token]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/")
    assert owner.stdout is not None
    out = owner.stdout
    try:
        yield owner, lambda: list(map(int, out.readline().split()))
    finally:
        owner.kill()
        owner.wait()
        out.close()


def until_gone(token: str, help_along: Callable[[], None] = lambda: None, but: Sequence[int] = ()) -> None:
    deadline = time.monotonic() + 20
    left: list[tuple[int, list[str]]] = []
    while time.monotonic() < deadline:
        left = [(pid, words) for pid, words in bearers_of(token) if pid not in but]
        if not left:
            return
        help_along()
        time.sleep(0.05)
    raise AssertionError(f"still there: {left}")


@pytest.mark.slow
@pytest.mark.needs("cgroups")
def test_a_supervisor_under_a_supervisor_leaves_no_groups() -> None:
    token = new_token()
    outer = f"""
import asyncio, os, sys
from carico.embedded.supervisor.guard import LaunchCommand, Guard
async def main():
    async with Guard() as guard:
        await guard.start(LaunchCommand([sys.executable, {families.__file__!r}, {token!r}], dict(os.environ)))
        await asyncio.Event().wait()
asyncio.run(main())
"""
    supervisor = subprocess.Popen([sys.executable, "-c", outer, token])
    try:
        deadline = time.monotonic() + 20
        while len(bearers_of(token)) < 6 and time.monotonic() < deadline:
            time.sleep(0.05)
        inner = [pid for pid, words in bearers_of(token) if words[-2:-1] == [families.__file__]]
        names = set().union(*(supervisor_groups(pid) for pid in inner))
        assert inner
        assert names
    finally:
        supervisor.kill()
        supervisor.wait()
    until_gone(token)
    deadline = time.monotonic() + 20
    while (left := existing(names)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
