"""The binding of a pod to a node.

A binding may reach the API server twice (a broken connection hides the response). After a conflict the pod is
therefore read: bound to the chosen node is success, any other node is another client's decision. `may_bind` is checked
right before each attempt is sent: the Lease may be lost while a binding waits for the rate limit or for a connection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum

import msgspec

from carico.backoff import doubled
from carico.clock import Clock
from carico.errors import ApiError, CaricoError, FencedError
from carico.kube import pods
from carico.kube.client import Client
from carico.kube.objects import Pod

RETRIES = 4  # further attempts in a row after 429, 5xx or a broken connection
IN_A_ROW = 5.0  # s after which there are no further attempts in a row: attempts without a response take long
NOT_THIS_POD = (404, 409, 422)  # status of a write that names a UID: the pod is gone, or re-created under its name
FIRST_WAIT = 0.1  # s before the first retry, doubled each time
UNANSWERED = 75.0  # s in which a request without a response may take effect: the API server ends it after 60
GATEWAY = (502, 504)  # the gateway that sent this status did not wait for the API server's response
SERVER_ERROR = 10.0  # s in which a request answered with 5xx may take effect: etcd may store what timed out there (7 s)


class BindResult(Enum):
    """The outcome of a binding."""

    DONE = "done"
    GONE = "gone"  # the pod was deleted, or re-created under its name
    ELSEWHERE = "elsewhere"  # another client bound it first
    FAILED = "failed"  # the API server rejects it for now; the pod waits and is retried
    UNKNOWN = "unknown"  # it was sent, and no response has shown the outcome yet


class BindOutcome(msgspec.Struct, frozen=True):
    bound: BindResult
    why: str = ""
    pod: Pod | None = None  # ELSEWHERE: as stored in the API server


DONE = BindOutcome(BindResult.DONE)


def rfc3339(wall: float) -> str:
    """
    >>> rfc3339(0.25)
    '1970-01-01T00:00:00.250000Z'
    """
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Binding:
    """The binding of one pod to one node, retried until its outcome is known.

    An attempt whose response was lost may have arrived, and may arrive even after the pod was read. A pod without a
    node therefore proves nothing while such an attempt is recent. Sending the same binding again is harmless, and a
    response to it is proof.
    """

    def __init__(
        self, client: Client, pod: Pod, node: str, clock: Clock, may_bind: Callable[[], bool] = lambda: True
    ) -> None:
        self._client, self._pod, self._node, self._clock, self._may_bind = client, pod, node, clock, may_bind
        self._doubt_until = -math.inf  # s, monotonic: until then an earlier attempt may still take effect
        self._unanswered = False  # one of the attempts was sent and got no response
        self._why = ""

    async def send(self) -> BindOutcome:
        """Makes up to RETRIES + 1 attempts in a row."""
        end = self._clock.monotonic() + IN_A_ROW
        for failures in range(1, RETRIES + 2):
            outcome, pause = await self._try()
            if outcome is not None:
                return outcome
            if failures > RETRIES or self._clock.monotonic() >= end:
                break
            await self._clock.sleep(max(doubled(FIRST_WAIT, IN_A_ROW, failures), pause))
        return await self._look() if self._suspect else BindOutcome(BindResult.FAILED, self._why)

    async def again(self) -> BindOutcome:
        """Reads the pod once more and, where only a response would be proof, makes one more attempt."""
        outcome = await self._look()
        if outcome.bound is BindResult.UNKNOWN and self._unanswered:
            outcome = (await self._try())[0] or outcome
        return outcome

    def doubt(self, seconds: float = SERVER_ERROR) -> None:
        """For `seconds` from now, the pod may be bound by a request that was sent before."""
        self._doubt_until = max(self._doubt_until, self._clock.monotonic() + seconds)

    @property
    def _suspect(self) -> bool:
        """An attempt may have taken effect; only reading the pod can show that it has not."""
        return self._doubt_until > -math.inf

    async def _try(self) -> tuple[BindOutcome | None, float]:
        """The outcome of one attempt. None: it may be retried, after at least that many seconds."""
        sent = 0  # the client sends a request again if an idle connection lost it

        def fence() -> bool:
            nonlocal sent
            leads = self._may_bind()
            sent += leads
            return leads

        try:
            await self._client.throttle()
            await pods.bind(self._client, self._pod, self._node, fence=fence)
            return DONE, 0.0
        except ApiError as error:
            if sent > 1:
                self._mark_unanswered()
            return await self._handle_error(error)
        except FencedError as error:
            self._why = str(error)
            if sent:
                self._mark_unanswered()
            return BindOutcome(BindResult.UNKNOWN if self._suspect else BindResult.FAILED, self._why), 0.0
        except Exception as error:  # of any kind: what was sent may have arrived
            self._why = str(error) or type(error).__name__
            if sent:
                self._mark_unanswered()
            return None, 0.0

    def _mark_unanswered(self) -> None:
        self._unanswered = True
        self.doubt(UNANSWERED)

    async def _handle_error(self, error: ApiError) -> tuple[BindOutcome | None, float]:
        self._why = str(error)
        if error.status == 429:
            return None, error.retry_after
        if error.status >= 500:
            if error.status in GATEWAY:
                self._mark_unanswered()
            self.doubt(SERVER_ERROR)
            return None, error.retry_after
        if error.status in (404, 409) or self._suspect:
            return await self._look(), 0.0
        return BindOutcome(BindResult.FAILED, error.message), 0.0

    async def _look(self) -> BindOutcome:
        """The outcome according to the pod as the API server has it now."""
        doubtful = self._clock.monotonic() < self._doubt_until  # before the request is sent
        try:
            present = await pods.read(self._client, self._pod.namespace, self._pod.name)
        except ApiError as error:
            return BindOutcome(BindResult.GONE if error.status == 404 else BindResult.UNKNOWN, self._why)
        except (CaricoError, OSError, msgspec.DecodeError):
            return BindOutcome(BindResult.UNKNOWN, self._why)
        if present.uid != self._pod.uid:
            return BindOutcome(BindResult.GONE, self._why)
        if node := present.spec.node_name:
            return (
                DONE if node == self._node else BindOutcome(BindResult.ELSEWHERE, f"it runs on {node} already", present)
            )
        if present.terminating:  # such a pod is never bound any more
            return BindOutcome(BindResult.GONE, self._why)
        return BindOutcome(BindResult.UNKNOWN if doubtful else BindResult.FAILED, self._why)
