"""The output of tasks: one task at a time, when it has ended, and in input order if requested."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from carico.embedded.folder import own_folder
from carico.errors import UsageError
from carico.run.tasks import Task

PREFIX = "carico-run-"


class Output:
    """Files per task, in `results` or in a temporary folder that is removed with the run."""

    def __init__(self, results: Path | None, keep_order: bool, tag: bool = False) -> None:
        self._keep = results is not None
        self._tag = tag
        self._in_order = keep_order
        self._next = 1
        self._waiting: dict[int, Task] = {}
        self._skipped: set[int] = set()
        self._temporary = ExitStack()
        if results is None:
            self._folder = self._temporary.enter_context(own_folder(PREFIX))
            return
        self._folder = results.absolute()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--results {results}: {error.strerror}; name a folder that can be made") from error

    def files(self, number: int) -> tuple[str, str]:
        """Paths for standard output and standard error; files of an earlier attempt are removed."""
        folder = self._folder / str(number)
        folder.mkdir(exist_ok=True)
        files = str(folder / "stdout"), str(folder / "stderr")
        for name in files:
            Path(name).unlink(missing_ok=True)
        return files

    def note(self, number: int, command: str) -> None:
        if self._keep:
            (self._folder / str(number) / "command").write_text(command + "\n", errors="surrogateescape")

    def skip(self, number: int) -> None:
        """A task that is not run this time does not delay the output of later ones."""
        self._skipped.add(number)

    def ended(self, task: Task) -> None:
        if not self._in_order:
            self._show(task)
            return
        self._waiting[task.number] = task
        while self._next in self._waiting or self._next in self._skipped:
            if self._next in self._waiting:
                self._show(self._waiting.pop(self._next))
            self._next += 1

    def close(self) -> None:
        """Print outputs that were held back for a task that will not run any more."""
        for number in sorted(self._waiting):
            self._show(self._waiting.pop(number))
        self._temporary.close()

    def _show(self, task: Task) -> None:
        folder = self._folder / str(task.number)
        tag = task.text.encode("utf-8", "surrogateescape") + b"\t" if self._tag else b""
        _copy(folder / "stdout", sys.stdout.buffer, tag)
        _copy(folder / "stderr", sys.stderr.buffer, tag)
        if not self._keep:
            shutil.rmtree(folder, ignore_errors=True)


def _copy(file: Path, to: BinaryIO, tag: bytes) -> None:
    with suppress(FileNotFoundError), file.open("rb") as source:
        if tag:
            to.writelines(tag + line for line in source)
        else:
            shutil.copyfileobj(source, to)
        to.flush()
