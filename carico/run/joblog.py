"""A log with one line per ended task, in the columns of GNU parallel's --joblog, and the tasks to skip on --resume.

Seq  Host  Starttime  JobRuntime  Send  Receive  Exitval  Signal  Command
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from carico.errors import UsageError
from carico.run.tasks import Result

COLUMNS = ("Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command")
HEAD = "\t".join(COLUMNS) + "\n"
NUMBER = re.compile(r"-?\d+")


class JobLog:
    """Appends a line per ended task; does nothing without a file."""

    def __init__(self, file: Path | None, fresh: bool) -> None:
        self._file = None
        if file is None:
            return
        try:
            if not fresh:
                _cut_incomplete_line(file)
            empty = fresh or not file.exists() or not file.stat().st_size
            self._file = file.open("w" if fresh else "a", buffering=1, errors="surrogateescape")
        except OSError as error:
            raise UsageError(f"--joblog {file}: {error.strerror}; name a file that can be written") from error
        if empty:
            self._file.write(HEAD)

    def write(self, result: Result) -> None:
        if self._file is not None:
            row = (result.task.number, ":", f"{result.started:.3f}", f"{result.seconds:10.3f}", 0, 0)
            cells = (*row, result.exit_code, result.signal, _in_one_line(result.command))
            self._file.write("\t".join(map(str, cells)) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class JobLogEntry(NamedTuple):
    place: str  # file and line
    command: str
    good: bool


class FinishedTasks:
    """The tasks of an earlier run; failed ones count only with `failed_too`."""

    def __init__(self, file: Path | None, *, failed_too: bool) -> None:
        self._entries = {} if file is None else _entries(file)
        self._failed_too = failed_too
        self.last = max(self._entries, default=0)  # number of the last task in it

    def has(self, number: int, command: str) -> bool:
        """Raises if the log has another command: the list has changed, and the numbers refer to other tasks."""
        entry = self._entries.get(number)
        if entry is None:
            return False
        if _in_one_line(command) != entry.command:
            was = f"task {number} was {entry.command!r} and is {command!r} now"
            raise UsageError(f"{entry.place}: {was}; resume with the same command and list")
        return entry.good or self._failed_too


def _entries(file: Path) -> dict[int, JobLogEntry]:
    entries = {}
    for line, text in enumerate(_lines(file), 1):
        parts = text.split("\t", len(COLUMNS) - 1)
        if line == 1 and parts[0] == "Seq":
            continue
        if len(parts) != len(COLUMNS) or not all(NUMBER.fullmatch(parts[i]) for i in (0, 6, 7)):
            raise UsageError(f"{file}:{line}: is not a line of a job log; delete it, or start without --resume")
        entries[int(parts[0])] = JobLogEntry(f"{file}:{line}", parts[8], parts[6] == "0" and parts[7] == "0")
    return entries


def _cut_incomplete_line(file: Path) -> None:
    """The next line would be appended to it, and the one after that run could not be read."""
    if not file.exists():
        return
    content = file.read_bytes()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        with file.open("r+b") as opened:
            opened.truncate(complete)


def _in_one_line(command: str) -> str:
    return command.replace("\n", " ").replace("\t", " ")


def _lines(file: Path) -> list[str]:
    """A last line without a newline was being written when the run was killed: it is ignored."""
    try:
        with file.open(errors="surrogateescape", newline="\n") as opened:  # a carriage return does not end a line
            text = opened.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"--joblog {file}: {error.strerror}") from error
    return text.split("\n")[:-1]
