"""The one exception of the harness: a line for a person, and the exit code that goes with it."""

from __future__ import annotations

WRONG_INPUT = 2
FAILED = 1


class ClusterError(Exception):
    """Something that the user can read and mend; `code` becomes the exit code."""

    def __init__(self, line: str, code: int = FAILED) -> None:
        super().__init__(line)
        self.code = code
