"""gRPC streams that are kept open by the client.

A `StreamPolicy`, free of I/O, decides what is sent on a stream; this module keeps the stream connected. Nothing is
buffered: the policy is called for its newest message only when that can be sent, so a client that reconnects starts
with the newest state.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from grpc import aio

from carico.backoff import doubled, spread
from carico.clock import Clock
from carico.errors import CaricoError
from carico.wire.channel import Dialer
from carico.wire.stream_end import RECONNECT

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.1  # s before the second attempt
LONGEST_PAUSE = 2.0  # s; doubled up to this, and jittered so that a cluster does not reconnect in one wave
# A server that does not respond in time is overloaded, and every new connection costs it more than a response.
PAUSE_AFTER_SILENCE = 1.0  # s; doubled each time that no response comes
LONGEST_PAUSE_AFTER_SILENCE = 30.0  # s
LONGEST_PATIENCE = 60.0  # s; the timeout is doubled as well
STATUS_WITHIN = 0.5  # s
MOST_SILENCES = 16  # that are counted
# The status of a stream that an overloaded server ends before its first response: INTERNAL if that broke a write.
REFUSALS = ("CANCELLED", "RESOURCE_EXHAUSTED", "INTERNAL")
SOONEST = 5.0  # s that a stream must have lived to be replaced without a pause when the server asks for that
SAME_TIME = 1e-6  # s: two sums for the same time may differ by rounding
END: Any = aio.EOF  # type: ignore[attr-defined]
RESOLVE_EVERY = 5.0  # s between two lookups of the addresses behind a name


class StreamPolicy(Protocol):
    """The message logic of one side of a stream; `now` is monotonic time in seconds."""

    def on_open(self, now: float) -> None:
        """A new stream: the other side knows nothing of earlier messages."""

    def delay(self, now: float) -> float:
        """Seconds until `next_message` has one; 0 when it has one now, infinite when it takes a `wake`."""

    def next_message(self, now: float) -> bytes:
        """The message to send now."""

    def on_message(self, message: bytes, now: float) -> None:
        """A message from the other side; may raise CaricoError for an invalid one."""


class StreamClient:
    """Keeps one stream of `method` open, to one of the addresses that `choose` returns.

    `patience`: seconds within which the other side must respond to each message, if it is one that responds; doubled
    after each time that it does not. `longest`: seconds after which the stream is replaced, on average, so that streams
    return to a replica that was unavailable.
    """

    def __init__(
        self,
        dialer: Dialer,
        method: str,
        policy: StreamPolicy,
        clock: Clock,
        *,
        choose: Choose,
        patience: float | None,
        longest: float = math.inf,
    ) -> None:
        self._dialer = dialer
        self._method = method
        self._policy = policy
        self._clock = clock
        self._choose = choose
        self._patience = patience
        self._longest = longest
        self._silences = 0  # times in a row that a response did not come
        self._until = math.inf  # s, monotonic: when this stream is replaced
        self._woken = asyncio.Event()
        self._pausing_until: float | None = None  # s, monotonic; None while not pausing
        self._unanswered_since: float | None = None
        self._received = False  # whether this stream has brought a message
        self.address: str | None = None  # the other side, once it has received or sent something

    def wake(self) -> None:
        """The policy has something new to send; a pause is interrupted only if that is due before its end.

        Most of what an agent offers, once a second, is not: waking up the stream's task for it would cost as much as
        making it.
        """
        if self._pausing_until is not None:
            now = self._clock.monotonic()
            if now + self._policy.delay(now) >= self._pausing_until - SAME_TIME:
                return
        self._woken.set()

    async def run(self) -> None:
        """Never returns; an outage is logged once."""
        failures, logged = 0, False
        while True:
            address = await self._choose()
            why = await self._converse(address) if address else "the name has no address"
            if why is None:
                continue
            if self.address is not None:
                failures, logged = 0, False
            if not logged:
                log.warning("no stream to %s (%s): %s; trying again", self._dialer.target, address, why)
            self.address, logged = None, True
            failures += 1
            pause = doubled(FIRST_PAUSE, LONGEST_PAUSE, failures)
            await self._clock.sleep(spread(max(pause, self._pause_after_silence())))

    def _pause_after_silence(self) -> float:
        if not self._silences:
            return 0.0
        return doubled(PAUSE_AFTER_SILENCE, LONGEST_PAUSE_AFTER_SILENCE, self._silences)

    def _patience_now(self) -> float:
        """The timeout for the next response, s."""
        patience = self._patience or 0.0
        return doubled(patience, max(LONGEST_PATIENCE, patience), self._silences + 1)

    async def _converse(self, address: str) -> str | None:
        """Sends and receives until the stream ends; returns what ended it, None if it is to be replaced at once."""
        began = self._clock.monotonic()
        self._until = began + self._longest * random.uniform(0.5, 1.5)
        try:
            metadata = self._dialer.metadata()
        except CaricoError as error:
            return str(error)
        channel: Any = self._dialer.open(address)
        try:
            call = channel.stream_stream(self._method)(metadata=metadata)
            await self._talk(call, address)
            if self._overdue():
                patience = self._patience_now()
                self._silences = min(self._silences + 1, MOST_SILENCES)
                return f"no answer within {patience:g} s"
            if self._is_old():
                return None
            why, is_expected = await _status(call)
            if is_expected and self._clock.monotonic() - began >= SOONEST:
                return None
            if why.startswith(REFUSALS) and not self._received:
                self._silences = min(self._silences + 1, MOST_SILENCES)
            return why
        finally:
            await channel.close()

    async def _talk(self, call: Any, address: str) -> None:
        self._unanswered_since, self._received = None, False
        self._policy.on_open(self._clock.monotonic())
        listening = asyncio.create_task(self._listen(call, address))
        try:
            while not listening.done() and not self._overdue() and not self._is_old():
                self._woken.clear()
                now = self._clock.monotonic()
                if self._policy.delay(now) > 0:
                    await self._pause(now)
                else:
                    await call.write(self._policy.next_message(now))
                    self._mark_sent(address, now)
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream ended during a write; its status has the reason
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    def _mark_sent(self, address: str, now: float) -> None:
        if self._patience is None:
            self._mark_reached(address)
        elif self._unanswered_since is None:
            self._unanswered_since = now

    def _overdue(self) -> bool:
        since = self._unanswered_since
        return since is not None and self._clock.monotonic() - since > self._patience_now()

    def _is_old(self) -> bool:
        """Time for a new stream, and every message has its response."""
        return self._unanswered_since is None and self._clock.monotonic() >= self._until

    async def _pause(self, now: float) -> None:
        """Waits for a call of `wake`, a response, the end of the stream, or until a message is due."""
        seconds = self._policy.delay(now)
        if self._unanswered_since is not None:
            seconds = min(seconds, self._unanswered_since + self._patience_now() - now + 0.01)
        seconds = min(seconds, max(0.0, self._until - now))
        self._pausing_until = now + seconds
        try:
            async with asyncio.timeout(max(0.0, seconds) if seconds < 3600 else None):
                await self._woken.wait()
        except TimeoutError:
            pass
        finally:
            self._pausing_until = None

    async def _listen(self, call: Any, address: str) -> None:
        try:
            while (message := await call.read()) is not END:
                self._unanswered_since, self._silences, self._received = None, 0, True
                self._mark_reached(address)
                self._receive(message)
                self._woken.set()
        finally:
            self._woken.set()

    def _receive(self, message: bytes) -> None:
        try:
            self._policy.on_message(message, self._clock.monotonic())
        except (CaricoError, ValueError) as error:
            log.warning("invalid message from %s: %s", self.address, error)

    def _mark_reached(self, address: str) -> None:
        if self.address is None:
            log.info("connected to %s at %s", self._dialer.target, address)
        self.address = address


async def _status(call: Any) -> tuple[str, bool]:
    """Why a stream ended, and whether the server expects the client again at once.

    gRPC returns the status only when every message has been read, which may never be.
    """
    try:
        async with asyncio.timeout(STATUS_WITHIN):
            why = f"{(await call.code()).name} {await call.details() or ''}".strip()
            return why, RECONNECT in {(key, value) for key, value in await call.trailing_metadata() or ()}
    except TimeoutError:
        return "the stream ended", False


Choose = Callable[[], Awaitable[str | None]]


def any_address(dialer: Dialer) -> Choose:
    """A random address behind the name, but not the previous one if there is another."""
    before: str | None = None

    async def choose() -> str | None:
        nonlocal before
        found = await dialer.addresses()
        others = [address for address in found if address != before] or found
        before = random.choice(others) if others else None
        return before

    return choose


async def every_address(
    dialer: Dialer, clock: Clock, start: Callable[[str, Choose], StreamClient], on_change: Callable[[list[str]], None]
) -> None:
    """Keeps a stream to every address behind the name; never returns; `start` makes the client for one of them."""
    running: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            found = await dialer.addresses()
            if found and set(found) != set(running):  # a name that does not resolve now keeps its streams
                for address in set(running) - set(found):
                    running.pop(address).cancel()
                for address in set(found) - set(running):
                    running[address] = asyncio.create_task(start(address, _always(address)).run())
                on_change(sorted(running))
            await clock.sleep(RESOLVE_EVERY)
    finally:
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)


def _always(address: str) -> Choose:
    async def choose() -> str | None:
        return address

    return choose
