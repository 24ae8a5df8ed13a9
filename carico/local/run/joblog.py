"""What has been done, one line a task, in the columns of GNU parallel's --joblog, and what need not be done again.

Seq  Host  Starttime  JobRuntime  Send  Receive  Exitval  Signal  Command
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from carico.errors import UsageError
from carico.local.run.tasks import Result

COLUMNS = ("Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command")
HEAD = "\t".join(COLUMNS) + "\n"


class JobLog:
    """Appends a line per ended task; nothing without a file."""

    def __init__(self, file: Path | None, fresh: bool) -> None:
        self._file = None
        if file is None:
            return
        try:
            empty = fresh or not file.exists() or not file.stat().st_size
            self._file = file.open("w" if fresh else "a", buffering=1, errors="surrogateescape")
        except OSError as error:
            raise UsageError(f"--joblog {file}: {error.strerror}; name a file that can be written") from error
        if empty:
            self._file.write(HEAD)

    def write(self, result: Result) -> None:
        if self._file is not None:
            command = result.command.replace("\n", " ").replace("\t", " ")
            row = (result.number, ":", f"{result.started:.3f}", f"{result.seconds:10.3f}", 0, 0)
            self._file.write("\t".join(map(str, (*row, result.exit_code, result.signal, command))) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def done(file: Path, command: Callable[[int], str | None], *, failed_too: bool) -> set[int]:
    """The numbers of tasks that an earlier run did; those that failed count only with `failed_too`.

    `command` gives the command of a number now. Where the log has another one the list has changed since, and numbers
    mean something else.
    """
    last: dict[int, bool] = {}
    for line, text in enumerate(_lines(file), 1):
        parts = text.split("\t", len(COLUMNS) - 1)
        if line == 1 and parts[0] == "Seq":
            continue
        if len(parts) != len(COLUMNS) or not (parts[0].isdigit() and parts[6].isdigit() and parts[7].isdigit()):
            raise UsageError(f"{file}:{line}: is no line of a job log; delete it, or start without --resume")
        number = int(parts[0])
        now = command(number)
        if now is not None and now.replace("\n", " ").replace("\t", " ") != parts[8]:
            was = f"task {number} was {parts[8]!r} and is {now!r} now"
            raise UsageError(f"{file}:{line}: {was}; resume with the same command and list")
        last[number] = parts[6] == "0" and parts[7] == "0"
    return {number for number, good in last.items() if good or failed_too}


def _lines(file: Path) -> list[str]:
    """A last line without an end was being written when the run was killed: it does not count."""
    try:
        text = file.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"--joblog {file}: {error.strerror}") from error
    return text[: text.rfind("\n") + 1].splitlines()
