"""The node's side of Capacity.Report: every replica of every scheduler receives every change."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator

from carico.clock import Clock
from carico.errors import InvalidMessage
from carico.settings import AgentSettings
from carico.types import NodeReport
from carico.wire.channel import Dialer
from carico.wire.client import Choose, StreamClient, every_address
from carico.wire.codec import report as codec
from carico.wire.rejection_log import RejectionLog
from carico.wire.report_policy import ReportPolicy

log = logging.getLogger(__name__)

METHOD = "/carico.wire.v1.Capacity/Report"


class ReportStreamPolicy:
    """What a node sends to one scheduler."""

    def __init__(
        self, sequence: Iterator[int], refusals: RejectionLog, on_ack: Callable[[codec.Ack], None] = lambda _: None
    ) -> None:
        self.rule = ReportPolicy()
        self._sequence = sequence
        self._refusals = refusals
        self._on_ack = on_ack

    def on_open(self, now: float) -> None:  # noqa: ARG002
        self.rule.reset()

    def delay(self, now: float) -> float:
        return self.rule.wait(now)

    def next_message(self, now: float) -> bytes:
        report = self.rule.take(next(self._sequence), now)
        return codec.encode(report, self.rule.known)

    def on_message(self, message: bytes, now: float) -> None:
        ack = codec.decode_ack(message)
        self.rule.acknowledged(
            ack.heartbeat,
            refused=ack.refused is not None,
            least_gap=ack.least_gap,
            takes_changes=ack.takes_changes,
        )
        self._on_ack(ack)
        if ack.refused is not None:
            self._refusals.note(InvalidMessage(ack.refused.reason, ack.refused.detail), now)


class ReportClient:
    """Keeps a stream to every address behind every name in `settings.schedulers`.

    `on_ack` gets every message of a scheduler: the node's allocatable resources, and the classes of its pods.
    """

    def __init__(
        self,
        settings: AgentSettings,
        clock: Clock,
        on_refused: Callable[[str], None] = lambda _: None,
        on_ack: Callable[[codec.Ack], None] = lambda _: None,
    ) -> None:
        self._dialers = [Dialer(target, settings, "a scheduler") for target in settings.schedulers]
        self._clock = clock
        self._refusals = RejectionLog(log, on_refused)
        self._on_ack = on_ack
        self._sequence = itertools.count(1)  # one count for all streams: it grows on each of them
        self._streams: dict[str, tuple[ReportStreamPolicy, StreamClient]] = {}
        self._newest: NodeReport | None = None
        self.accepted = False  # whether any scheduler has accepted a report since the start

    @property
    def connected(self) -> int:
        """Schedulers that this node has a stream to now."""
        return sum(client.address is not None for _, client in self._streams.values())

    def offer(self, report: NodeReport) -> None:
        """The node's newest report, with both sets in it; its sequence and age are set when it is sent."""
        self._newest = report
        for policy, client in self._streams.values():
            policy.rule.offer(report)
            client.wake()

    def _answered(self, ack: codec.Ack) -> None:
        self.accepted = self.accepted or ack.refused is None
        self._on_ack(ack)

    async def run(self) -> None:
        await asyncio.gather(*(self._follow(dialer) for dialer in self._dialers))

    async def _follow(self, dialer: Dialer) -> None:
        def start(address: str, choose: Choose) -> StreamClient:
            policy = ReportStreamPolicy(self._sequence, self._refusals, self._answered)
            if self._newest is not None:
                policy.rule.offer(self._newest)
            client = StreamClient(dialer, METHOD, policy, self._clock, choose=choose, patience=None)
            self._streams[f"{dialer.target} {address}"] = (policy, client)
            return client

        def changed(addresses: list[str]) -> None:
            log.info("schedulers behind %s: %s", dialer.target, ", ".join(addresses))
            gone = [key for key in self._streams if key.split()[0] == dialer.target and key.split()[1] not in addresses]
            for key in gone:
                del self._streams[key]

        await every_address(dialer, self._clock, start, changed)
