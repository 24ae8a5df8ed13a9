"""The scheduler's side of Capacity.Report, up to the point where a good report is handed on."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from carico.clock import Clock
from carico.errors import RefusedMessage
from carico.types import ClassKey, NodeReport, NodeSize
from carico.wire.codec import report as codec
from carico.wire.codec.checks import Undecodable
from carico.wire.codec.cluster import Refused
from carico.wire.identity import Caller
from carico.wire.order import OpenStreams, ReportOrder
from carico.wire.refusals import Refusals
from carico.wire.server import Outlet, StreamMethod

log = logging.getLogger(__name__)

METHOD = "/carico.wire.v1.Capacity/Report"
CLASSES_AT_ONCE = 500  # pods whose classes stand in one message


class Listener(Protocol):
    """Who is told: the scheduler."""

    def reported(self, report: NodeReport) -> None:
        """A valid report, newer than all before, with both sets in it. Its age is the one at its sending."""

    def fell_silent(self, node: str) -> None:
        """The node's newest stream broke."""

    def heartbeat(self) -> float:
        """Seconds: how often a node should speak when nothing moves."""

    def leads(self) -> bool:
        """Whether this replica is the one that binds."""


class ReportService:
    """Makes a session for every stream; `method` is what a GrpcServer serves.

    `least_gap`: seconds between two reports of a node that a busy scheduler asks for; 0: the agents' own rule.
    """

    def __init__(
        self,
        listener: Listener,
        clock: Clock,
        on_refused: Callable[[str], None],
        least_gap: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.listener = listener
        self.least_gap = least_gap
        self.outlets: dict[str, tuple[int, Outlet]] = {}  # node to its newest stream
        self.clock = clock
        self.order = ReportOrder()
        self.streams = OpenStreams(self.order)
        self.refusals = Refusals(log, on_refused)
        self._streams = itertools.count(1)
        self.method = StreamMethod(lambda caller: _Session(self, caller, next(self._streams)), self.refuse)

    def ack(
        self,
        refused: Refused | None = None,
        allocatable: NodeSize | None = None,
        classes: Mapping[str, ClassKey | None] = codec.NO_CLASSES,
    ) -> bytes:
        return codec.encode_ack(
            codec.Ack(
                heartbeat=self.listener.heartbeat(),
                leader=self.listener.leads(),
                refused=refused,
                allocatable=allocatable,
                classes=classes,
                least_gap=self.least_gap(),
                takes_changes=True,
            )
        )

    def tell(
        self,
        node: str,
        *,
        allocatable: NodeSize | None = None,
        classes: Mapping[str, ClassKey | None] = codec.NO_CLASSES,
    ) -> bool:
        """Tells a node what it offers to pods, or the classes of its pods by UID; False when it has no stream now.

        A class of None says that the pod is no workload. Waits for nobody. What it is told is forgotten with its
        stream, so tell it again after its first report.
        """
        found = self.outlets.get(node)
        if found is None:
            return False
        told = list(classes.items())
        parts = [dict(told[at : at + CLASSES_AT_ONCE]) for at in range(0, len(told), CLASSES_AT_ONCE)] or [{}]
        for number, part in enumerate(parts):
            found[1].announce(self.ack(allocatable=None if number else allocatable, classes=part))
        return True

    def refuse(self, error: RefusedMessage) -> None:
        self.refusals.note(error, self.clock.monotonic())

    def announce(self) -> None:
        """Tells every node the heartbeat and the leadership of this moment, e.g. after a change of leader.

        Waits for no node: one that does not read must not keep a leader from scheduling.
        """
        self.method.broadcast(self.ack())


class _Session:
    def __init__(self, service: ReportService, caller: Caller, stream: int) -> None:
        self._service = service
        self._caller = caller
        self._stream = stream
        self._before: NodeReport | None = None  # the last good report of this stream
        self._outlet: Outlet | None = None
        service.streams.opened(stream)

    def attach(self, outlet: Outlet) -> None:
        self._outlet = outlet

    def greeting(self) -> bytes | None:
        return self._service.ack()

    def answer(self, message: bytes) -> bytes | None:
        try:
            parsed = codec.parse(message)
        except Undecodable as error:
            self._service.refuse(RefusedMessage("undecodable", str(error)))
            raise
        try:
            report = self._checked(codec.decode(parsed, self._before))
        except RefusedMessage as error:
            self._service.refuse(error)
            return self._service.ack(Refused(parsed.sequence, error.reason, error.detail))
        if self._before is None:
            self._service.streams.speaks(self._stream, report.node)
            if self._outlet is not None:
                self._service.outlets[report.node] = (self._stream, self._outlet)
        self._before = report
        self._service.listener.reported(report)
        return None

    def closed(self) -> None:
        if self._before is not None and self._service.order.stream_of(self._before.node) == self._stream:
            self._service.listener.fell_silent(self._before.node)
        if self._before is not None and self._service.outlets.get(self._before.node, (None,))[0] == self._stream:
            del self._service.outlets[self._before.node]
        self._service.streams.closed(self._stream)

    def _checked(self, report: NodeReport) -> NodeReport:
        self._caller.speaks_for(report.node)
        if self._before is not None and self._before.node != report.node:
            raise RefusedMessage("identity", f"a stream of {self._before.node} speaks of {report.node}")
        complete = self._with_sets(report)
        self._service.order.check(report.node, stream=self._stream, start_id=report.start_id, sequence=report.sequence)
        return complete

    def _with_sets(self, report: NodeReport) -> NodeReport:
        """Sets that were left out are those of the report before, on the same stream."""
        if report.counted is not None and report.finished is not None:
            return report
        if self._before is None:
            raise RefusedMessage("shape", "a stream's first report must carry counted and finished")
        counted = self._before.counted if report.counted is None else report.counted
        finished = self._before.finished if report.finished is None else report.finished
        return dataclasses.replace(report, counted=counted, finished=finished)
