"""Files of the real kernel that do not come in one piece."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from carico.telemetry.procfs import KernelFile, read_once

MAPPINGS = Path("/proc/self/smaps")  # a list of many pages that every process may read, of itself


def test_a_list_longer_than_a_page_is_read_to_its_end() -> None:
    whole = MAPPINGS.read_bytes().splitlines()
    assert len(read_once(MAPPINGS).splitlines()) == pytest.approx(len(whole), rel=0.1)
    file = KernelFile(MAPPINGS, pages=True)
    assert file.read().splitlines()[-1][:8] == whole[-1][:8] == b"VmFlags:"


def test_the_kernel_gives_such_a_list_a_page_at_a_time() -> None:
    """Why `pages` is needed: one call gets a part, however large its buffer is."""
    descriptor = os.open(MAPPINGS, os.O_RDONLY)
    try:
        assert len(os.pread(descriptor, 1 << 24, 0)) < len(MAPPINGS.read_bytes()) / 2
    finally:
        os.close(descriptor)
