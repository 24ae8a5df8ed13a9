"""The only exception of the harness: one line for the user, and its exit code."""

from __future__ import annotations

WRONG_INPUT = 2
FAILED = 1


class ClusterError(Exception):
    """An error that the user can understand and fix; `code` becomes the exit code."""

    def __init__(self, line: str, code: int = FAILED) -> None:
        super().__init__(line)
        self.code = code
