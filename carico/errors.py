"""All exceptions that Carico defines.

    CaricoError                 one line for the user, exit code 1
    ├── UsageError              wrong settings, flags or input files: exit code 2
    ├── SourceError             a telemetry or pod source could not be read
    │   └── SourceMissing       … because this machine does not have it: not an error, use another
    ├── InvalidMessage          a message from another process that was decodable but invalid
    ├── TokenRefused            a token gives its bearer no rights here
    └── TryAgain                cannot be decided now, but later

The text of each has the wrong value and how to fix it.
"""


class CaricoError(Exception):
    """An error that the user can fix; shown as one line without a traceback."""

    exit_code = 1


class UsageError(CaricoError):
    """The request is invalid: the caller has to change it."""

    exit_code = 2


class SourceError(CaricoError):
    """A source of telemetry or of pods exists but cannot be read."""


class SourceMissing(SourceError):
    """A source does not exist (no PSI in this kernel, no such socket)."""


class InvalidMessage(CaricoError):
    """A message was rejected. `reason` is one word of a small set, usable as a metric label."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class TokenRefused(CaricoError):
    """A token gives its bearer no rights here. `reason` is one word of a small set, usable as a metric label."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class TryAgain(CaricoError):
    """What is needed to decide cannot be had now, for instance because the API server does not answer."""
