"""Signals reach who was found, and never a stranger that has got the number meanwhile."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest

from carico.embedded.supervisor import family


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as child:
        yield child
        child.kill()


class OnceOnly:
    """Finds a process that ends at once, whose number a stranger has from then on."""

    def __init__(self, pid: int) -> None:
        self._answers = [{pid}]

    def __call__(self) -> set[int]:
        return self._answers.pop() if self._answers else set()


def test_a_stranger_that_got_the_number_is_left_alone(process: subprocess.Popen[bytes]) -> None:
    assert family.kill_all(OnceOnly(process.pid)) == set()
    family.signal_found(OnceOnly(process.pid), signal.SIGKILL)
    process.terminate()
    assert process.wait() == -signal.SIGTERM, "this is the first signal that it got"


def test_a_descriptor_of_an_ended_process_reaches_no_other(process: subprocess.Popen[bytes]) -> None:
    looks = []

    def find() -> set[int]:
        """By the second look the process is gone for good, and yet somebody of that number is there."""
        looks.append(process.pid)
        if len(looks) == 2:
            process.kill()
            process.wait()
        return {process.pid}

    family.signal_found(find, signal.SIGTERM)
    assert len(looks) == 2


@pytest.mark.parametrize("descriptors", [True, False])
def test_what_is_found_is_killed(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, descriptors: bool
) -> None:
    if not descriptors:  # as on a kernel before 5.3

        def missing(_: int) -> int:
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(family.os, "pidfd_open", missing)

    def find() -> set[int]:
        return {process.pid} & family.living()

    assert family.kill_all(find, process.poll) == set()
    assert process.wait() == -signal.SIGKILL
