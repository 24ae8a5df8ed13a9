"""The binding of a pod to a node.

A binding may reach the API server twice (a broken connection hides the answer). A conflict is therefore looked into:
bound to the node that we chose is success, anything else is somebody else's decision. `may_bind` is asked right before
each try is sent: the Lease may be lost while a binding waits for its turn or for a connection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum

import msgspec

from carico.clock import Clock
from carico.errors import CaricoError
from carico.kube import protobuf
from carico.kube.client import ApiError, Client, FencedError
from carico.kube.decode import decode
from carico.kube.objects import Pod
from carico.kube.paths import segment

RETRIES = 4  # times that a binding is sent again in a row after 429, 5xx or a broken connection
IN_A_ROW = 5.0  # s after which it is not sent again in a row: tries that are not answered take long
NOT_THIS_POD = (404, 409, 422)  # answers to a write that names a UID: the pod is gone, or made anew under its name
FIRST_WAIT = 0.1  # s before the first of them, doubled each time
UNANSWERED = 75.0  # s in which a request without an answer may take effect: the API server ends it after 60
GATEWAY = (502, 504)  # whoever gave this answer did not wait for the API server's
SERVER_ERROR = 10.0  # s in which one that was answered with 5xx may: etcd may store what timed out there (7 s)


class Bound(Enum):
    """What became of a binding."""

    DONE = "done"
    GONE = "gone"  # the pod was deleted, or made anew under its name
    ELSEWHERE = "elsewhere"  # somebody else bound it first
    FAILED = "failed"  # the API server does not take it now; the pod waits and is tried again
    UNKNOWN = "unknown"  # it was sent, and no answer says yet what came of it


class Outcome(msgspec.Struct, frozen=True):
    bound: Bound
    why: str = ""
    pod: Pod | None = None  # ELSEWHERE: as the API server has it


DONE = Outcome(Bound.DONE)


def pod_path(pod: Pod, sub: str = "") -> str:
    return _pod_path(pod.namespace, pod.name) + sub


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(name)}"


def now_text(wall: float) -> str:
    """
    >>> now_text(0.25)
    '1970-01-01T00:00:00.250000Z'
    """
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Binding:
    """The binding of one pod to one node, tried until its outcome is known.

    A try whose answer was lost may have arrived, and may arrive even after a look at the pod. A pod without a node
    therefore proves nothing while such a try is recent. Sending the same binding again does no harm, and an answer to
    it is proof.
    """

    def __init__(
        self, client: Client, pod: Pod, node: str, clock: Clock, may_bind: Callable[[], bool] = lambda: True
    ) -> None:
        self._client, self._pod, self._node, self._clock, self._may_bind = client, pod, node, clock, may_bind
        self._doubt_until = -math.inf  # s, monotonic: before, an earlier try may still take effect
        self._unanswered = False  # one of the tries was sent and not answered
        self._why = ""

    async def send(self) -> Outcome:
        """A few tries in a row."""
        wait, end = FIRST_WAIT, self._clock.monotonic() + IN_A_ROW
        for left in reversed(range(RETRIES + 1)):
            outcome, pause = await self._try()
            if outcome is not None:
                return outcome
            if not left or self._clock.monotonic() >= end:
                break
            await self._clock.sleep(max(wait, pause))
            wait *= 2
        return await self._look() if self._suspect else Outcome(Bound.FAILED, self._why)

    async def again(self) -> Outcome:
        """One more look at the pod and, where only its answer would be proof, one more try."""
        outcome = await self._look()
        if outcome.bound is Bound.UNKNOWN and self._unanswered:
            outcome = (await self._try())[0] or outcome
        return outcome

    def doubt(self, seconds: float = SERVER_ERROR) -> None:
        """For so long from now, the pod may be bound by something that was sent before."""
        self._doubt_until = max(self._doubt_until, self._clock.monotonic() + seconds)

    @property
    def _suspect(self) -> bool:
        """A try may have taken effect; only a look at the pod can say that it has not."""
        return self._doubt_until > -math.inf

    async def _try(self) -> tuple[Outcome | None, float]:
        """What came of one try. None: it may be tried again, after so many seconds at least."""
        meta = {"name": self._pod.name, "namespace": self._pod.namespace, "uid": self._pod.uid}
        thing = {"metadata": meta, "target": {"apiVersion": "v1", "kind": "Node", "name": self._node}}
        sent = 0  # the client sends once more what an idle connection swallowed

        def fence() -> bool:
            nonlocal sent
            leads = self._may_bind()
            sent += leads
            return leads

        try:
            await self._client.turn()
            await self._client.create(
                pod_path(self._pod, "/binding"), protobuf.BINDING, thing, urgent=True, fence=fence
            )
            return DONE, 0.0
        except ApiError as error:
            if sent > 1:
                self._lost()
            return await self._refused(error)
        except FencedError as error:
            self._why = str(error)
            if sent:
                self._lost()
            return Outcome(Bound.UNKNOWN if self._suspect else Bound.FAILED, self._why), 0.0
        except Exception as error:  # of whatever kind: what was sent may have arrived
            self._why = str(error) or type(error).__name__
            if sent:
                self._lost()
            return None, 0.0

    def _lost(self) -> None:
        self._unanswered = True
        self.doubt(UNANSWERED)

    async def _refused(self, error: ApiError) -> tuple[Outcome | None, float]:
        self._why = str(error)
        if error.status == 429:
            return None, error.retry_after
        if error.status >= 500:
            if error.status in GATEWAY:
                self._lost()
            self.doubt(SERVER_ERROR)
            return None, error.retry_after
        if error.status in (404, 409) or self._suspect:
            return await self._look(), 0.0
        return Outcome(Bound.FAILED, error.message), 0.0

    async def _look(self) -> Outcome:
        """What the API server has of the pod now."""
        doubtful = self._clock.monotonic() < self._doubt_until  # before it is asked
        try:
            present = decode(Pod, await self._client.call("GET", pod_path(self._pod)))
        except ApiError as error:
            return Outcome(Bound.GONE if error.status == 404 else Bound.UNKNOWN, self._why)
        except (CaricoError, OSError, msgspec.DecodeError):
            return Outcome(Bound.UNKNOWN, self._why)
        if present.uid != self._pod.uid:
            return Outcome(Bound.GONE, self._why)
        if node := present.spec.node_name:
            return DONE if node == self._node else Outcome(Bound.ELSEWHERE, f"it runs on {node} already", present)
        if present.terminating:  # such a pod is never bound any more
            return Outcome(Bound.GONE, self._why)
        return Outcome(Bound.UNKNOWN if doubtful else Bound.FAILED, self._why)


async def get_pod(client: Client, namespace: str, name: str) -> Pod:
    return decode(Pod, await client.call("GET", _pod_path(namespace, name)))
