"""All exceptions that Carico defines.

    CaricoError                 one line for the user, exit code 1
    ├── UsageError              wrong settings, flags or input files: exit code 2
    ├── SourceError             a telemetry or pod source could not be read
    │   └── SourceMissing       … because this machine does not have it: not an error, use another
    ├── InvalidMessage          a message from another process that was decodable but invalid
    ├── UndecodableMessage      … or that could not be decoded
    ├── Unauthenticated         a caller over gRPC has no valid identity
    ├── TokenRefused            a token gives its bearer no rights here
    ├── TryAgain                cannot be decided now, but later
    ├── HttpError               the connection to the API server broke
    │   └── CredentialError     … or could not be made for want of credentials
    ├── ApiError                the API server rejected a request
    ├── ResourceExpired         a watch has to list again
    ├── FencedError             not sent: this replica no longer leads
    ├── QueueFullError          not sent: too many writes wait
    ├── ChangedMeanwhile        the object was written by another client
    ├── StartFailed             a process of the embedded cluster could not be started
    └── CannotRun               a pod needs something that the embedded node does not have

    RejectedRequest             an HTTP request is answered with an error before its page sees it
    TooManyRequests             … because too many of its kind are being answered

The text of each has the wrong value and how to fix it. The embedded API server has its own: `Status` of Kubernetes
(embedded/apiserver/status_error.py).
"""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

NO_CAUSES: Mapping[str, str] = MappingProxyType({})


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


class HttpError(CaricoError):
    """The connection to the API server broke, or the response is not valid HTTP."""


class CredentialError(HttpError):
    """No credentials could be obtained, so nothing was sent. To be retried, like a connection that failed."""


class ApiError(CaricoError):
    """The API server rejected a request. `status` is HTTP's, `reason` Kubernetes' (Conflict, NotFound, …)."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float = 0.0,
        causes: Mapping[str, str] = NO_CAUSES,
    ) -> None:
        super().__init__(f"the API server answered {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after  # s
        self.causes = causes  # machine-readable reason to message, where there are any


class ResourceExpired(CaricoError):
    """The resource version to watch from is gone: relist."""


class FencedError(CaricoError):
    """The request was not sent: this replica no longer leads."""

    def __init__(self) -> None:
        super().__init__("this replica no longer leads")


class QueueFullError(CaricoError):
    """The write was dropped unsent: too many were waiting."""

    def __init__(self) -> None:
        super().__init__("too many writes to the API server wait")


class ChangedMeanwhile(CaricoError):
    """Another client wrote the pod at the same time; the next attempt sees that change."""


class UndecodableMessage(CaricoError):
    """Bytes that are not the expected message."""


class Unauthenticated(CaricoError):
    """The caller has no valid identity for this server. Ends the call."""


class StartFailed(CaricoError):
    """A program could not be started: the program or its folder does not exist."""


class CannotRun(CaricoError):
    """The pod requires something that this node does not have."""


class RejectedRequest(Exception):
    """The request is rejected before it reaches its page; `reason` is sent to the client and logged."""

    def __init__(self, status: HTTPStatus, reason: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


class TooManyRequests(Exception):
    """Too many explanations are requested at once."""
