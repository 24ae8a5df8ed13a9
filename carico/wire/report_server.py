"""The scheduler's side of Capacity.Report, up to the point where a valid report is passed on."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from carico.clock import Clock
from carico.errors import InvalidMessage, UndecodableMessage
from carico.types import ClassKey, NodeReport, NodeSize
from carico.wire.codec import report as codec
from carico.wire.codec.cluster import RejectedMessage
from carico.wire.identity import Caller
from carico.wire.rejection_log import RejectionLog
from carico.wire.sequence_guard import OpenStreams, SequenceGuard
from carico.wire.server import Outlet, StreamMethod

log = logging.getLogger(__name__)

METHOD = "/carico.wire.v1.Capacity/Report"
CLASSES_AT_ONCE = 500  # pods whose classes are in one message


class ReportHandler(Protocol):
    """The receiver of reports: the scheduler."""

    def on_report(self, report: NodeReport) -> None:
        """A valid report, newer than all before, with both sets in it. Its age is the one at its sending."""

    def on_disconnect(self, node: str) -> None:
        """The node's newest stream broke."""

    def heartbeat(self) -> float:
        """Seconds: how often a node should report when nothing moves."""

    def leads(self) -> bool:
        """Whether this replica is the one that binds."""


class ReportService:
    """Makes a session for every stream; `method` is what a GrpcServer serves.

    `least_gap`: seconds between two reports of a node that a busy scheduler requests; 0: the agents' own rule.
    """

    def __init__(
        self,
        listener: ReportHandler,
        clock: Clock,
        on_refused: Callable[[str], None],
        least_gap: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.listener = listener
        self.least_gap = least_gap
        self.outlets: dict[str, tuple[int, Outlet]] = {}  # node to its newest stream
        self.clock = clock
        self.order = SequenceGuard()
        self.streams = OpenStreams(self.order)
        self.refusals = RejectionLog(log, on_refused)
        self._streams = itertools.count(1)
        self.method = StreamMethod(
            lambda caller: _Session(self, caller, next(self._streams)), self.refuse, Caller.is_node
        )

    def ack(
        self,
        refused: RejectedMessage | None = None,
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

    def send(
        self,
        node: str,
        *,
        allocatable: NodeSize | None = None,
        classes: Mapping[str, ClassKey | None] = codec.NO_CLASSES,
    ) -> bool:
        """Sends a node its allocatable resources, or the classes of its pods by UID; False when it has no stream now.

        A class of None means that the pod is not a workload. Does not wait. The node forgets this with its stream, so
        it must be sent again after the first report of a stream.
        """
        found = self.outlets.get(node)
        if found is None:
            return False
        sent = list(classes.items())
        parts = [dict(sent[at : at + CLASSES_AT_ONCE]) for at in range(0, len(sent), CLASSES_AT_ONCE)] or [{}]
        for number, part in enumerate(parts):
            found[1].announce(self.ack(allocatable=None if number else allocatable, classes=part))
        return True

    def refuse(self, error: InvalidMessage) -> None:
        self.refusals.note(error, self.clock.monotonic())

    def announce(self) -> None:
        """Sends every node the current heartbeat and leadership, e.g. after a change of leader.

        Waits for no node: one that does not read must not delay a leader's scheduling.
        """
        self.method.broadcast(self.ack())


class _Session:
    def __init__(self, service: ReportService, caller: Caller, stream: int) -> None:
        self._service = service
        self._caller = caller
        self._stream = stream
        self._before: NodeReport | None = None  # the last valid report of this stream
        self._outlet: Outlet | None = None
        service.streams.add(stream)

    def attach(self, outlet: Outlet) -> None:
        self._outlet = outlet

    def greeting(self) -> bytes | None:
        return self._service.ack()

    def answer(self, message: bytes) -> bytes | None:
        try:
            parsed = codec.parse(message)
        except UndecodableMessage as error:
            self._service.refuse(InvalidMessage("undecodable", str(error)))
            raise
        try:
            report = self._checked(codec.decode(parsed, self._before))
        except InvalidMessage as error:
            self._service.refuse(error)
            return self._service.ack(RejectedMessage(parsed.sequence, error.reason, error.detail))
        if self._before is None:
            self._service.streams.assign(self._stream, report.node)
            if self._outlet is not None:
                self._service.outlets[report.node] = (self._stream, self._outlet)
        self._before = report
        self._service.listener.on_report(report)
        return None

    def on_close(self) -> None:
        if self._before is not None and self._service.order.stream_of(self._before.node) == self._stream:
            self._service.listener.on_disconnect(self._before.node)
        self.on_return()

    def on_return(self) -> None:
        """The node's reports continue on another stream; if they do not, the node becomes stale in time."""
        if self._before is not None and self._service.outlets.get(self._before.node, (None,))[0] == self._stream:
            del self._service.outlets[self._before.node]
        self._service.streams.remove(self._stream)

    def _checked(self, report: NodeReport) -> NodeReport:
        self._caller.authorize_node(report.node)
        if self._before is not None and self._before.node != report.node:
            raise InvalidMessage("identity", f"a stream of {self._before.node} carries a report of {report.node}")
        complete = self._with_sets(report)
        self._service.order.check(report.node, stream=self._stream, start_id=report.start_id, sequence=report.sequence)
        return complete

    def _with_sets(self, report: NodeReport) -> NodeReport:
        """Sets that were left out are those of the previous report on the same stream."""
        if report.counted is not None and report.finished is not None:
            return report
        if self._before is None:
            raise InvalidMessage("shape", "a stream's first report must carry counted and finished")
        counted = self._before.counted if report.counted is None else report.counted
        finished = self._before.finished if report.finished is None else report.finished
        return dataclasses.replace(report, counted=counted, finished=finished)
