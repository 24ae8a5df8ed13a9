"""A task, its result, and the counts of all tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

START_FAILED = 127  # exit code of a command that could not be started, as in a shell
TIMED_OUT = -1  # exit code in the job log of a task that exceeded its timeout, as in GNU parallel
MOST_COUNTED = 100  # failed tasks that the exit code can express; 101 means more


@dataclass
class Task:
    number: int  # from 1, by its position in the list
    text: str
    failures: int = 0  # times that it failed
    displaced: int = 0  # times that it was killed for memory or with its job supervisor, and restarted
    least: float = 0.0  # bytes that it is known to take


@dataclass(frozen=True)
class Result:
    task: Task
    command: str
    started: float  # s since the epoch
    seconds: float
    exit_code: int  # 0 when a signal ended it
    signal: int
    message: str = ""  # why it could not be started, or was ended

    @property
    def good(self) -> bool:
        return self.exit_code == 0 and self.signal == 0


@dataclass
class TaskCounts:
    """The counts for the exit code and the summary."""

    tasks: int = 0  # that have been read so far
    skipped: int = 0  # done by an earlier run
    succeeded: int = 0
    failed: int = 0
    most_at_once: int = 0
    paused: int = 0
    displaced: int = 0
    halted: bool = field(default=False)

    @property
    def exit_code(self) -> int:
        """
        >>> TaskCounts(500, failed=3).exit_code, TaskCounts(500, failed=300).exit_code
        (3, 101)
        """
        return min(self.failed, MOST_COUNTED + 1)
