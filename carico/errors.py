"""Every error that Carico raises on purpose.

    CaricoError                 one line for the person in front of the terminal, exit code 1
    ├── UsageError              wrong settings, flags or input files: exit code 2
    ├── SourceError             a telemetry or pod source could not be read
    │   └── SourceMissing       … because this machine does not have it: not an error, use another
    └── RefusedMessage          a message from another process that was decodable but invalid

The text of each names the value that was wrong and what to do about it.
"""


class CaricoError(Exception):
    """Something that a person can fix; shown as one line without a traceback."""

    exit_code = 1


class UsageError(CaricoError):
    """What was asked for makes no sense: the asker has to change it."""

    exit_code = 2


class SourceError(CaricoError):
    """A source of telemetry or of pods is there but broken."""


class SourceMissing(SourceError):
    """A source is not there at all (no PSI in this kernel, no such socket)."""


class RefusedMessage(CaricoError):
    """A message that was refused. `reason` is one word out of a small set, fit for a metric's label."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
