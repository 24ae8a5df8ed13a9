"""A short soak: every kind of fault at least once on real parts, and every figure good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.cluster.fixtures import needs_scale

pytestmark = [pytest.mark.cluster, pytest.mark.long, needs_scale]

MINUTES = 4
GOOD_AT_ZERO = ("lost", "bound_twice", "over_capacity", "waiting_that_fit", "victims_beyond_need", "crashes")


@pytest.mark.timeout(60 * MINUTES + 600)
def test_every_kind_of_fault_once() -> None:
    command = [sys.executable, "-m", "bench", "soak"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, env=os.environ | {"MINUTES": str(MINUTES)}, stdout=subprocess.PIPE, text=True
    )
    print(done.stdout)
    assert done.returncode == 0
    figures = msgspec.json.decode(done.stdout.splitlines()[-1])["figures"]
    assert {name: figures[name] for name in GOOD_AT_ZERO} == dict.fromkeys(GOOD_AT_ZERO, 0)
    assert figures["least_of_a_kind"] >= 1
