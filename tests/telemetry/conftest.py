"""A machine out of tests/fixtures, for tests of what reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.node.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[str], Machine]:
    return lambda kind: Machine(tmp_path / kind, kind)
