"""Leader election on a Lease, so that one of several replicas binds.

No other machine's clock is trusted: a Lease counts as abandoned once its record has not changed for its duration *as
observed by this process*. The leader renews every `retry` seconds and steps down when it could not renew for `renew`
seconds: before another replica can take the Lease, because renew < duration.

The Lease has its own connection, so a burst of other requests cannot delay it. Three attempts fit into `renew`, so that
a connection to an API server that has vanished costs one of them and not the leadership.

https://kubernetes.io/docs/concepts/architecture/leases/
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import msgspec

from carico.clock import Clock
from carico.errors import ApiError, CaricoError
from carico.kube import leases
from carico.kube.binding import rfc3339
from carico.kube.client import Client
from carico.kube.decode import decode

log = logging.getLogger(__name__)

TRIES = 3  # attempts that fit into `renew` even if none gets a response


@dataclass(frozen=True)
class LeaseTimes:
    duration: float = 15.0  # s without a renewal after which others may take the Lease
    renew: float = 10.0  # s without success after which the leader steps down
    retry: float = 2.0  # s between two attempts


def unique_identity() -> str:
    """Two replicas with one identity would both lead; host names and PIDs can be equal in containers."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class Election:
    """`run` calls `lead` while this process holds the Lease, and cancels it when the Lease is lost."""

    def __init__(
        self, client: Client, namespace: str, name: str, identity: str, clock: Clock, times: LeaseTimes | None = None
    ) -> None:
        self._clock, self.times = clock, times or LeaseTimes()
        self._client = client.apart(patience=self.times.renew / TRIES)
        self._namespace, self._name, self.identity = namespace, name, identity
        self._seen: bytes = b""  # the record as it was when it last changed …
        self._seen_at = float("-inf")  # … and when, monotonic
        self._keeping: asyncio.Task[None] | None = None
        self._no_answer = False  # the last attempt got no response
        self.elected = False  # has taken the Lease and not released it
        self.holder = ""
        self.renewed_at = float("-inf")  # s, monotonic

    @property
    def leading(self) -> bool:
        """Whether no other replica can hold the Lease now."""
        return self.elected and self._clock.monotonic() < self._ends_at

    @property
    def _ends_at(self) -> float:
        return self.renewed_at + self.times.renew

    async def acquire(self) -> None:
        """Returns once this process is the leader."""
        while not await self._try():
            await self._clock.sleep(self.times.retry * (1 + 0.2 * random.random()))
        self.elected = True
        log.info("%s leads now (lease %s/%s)", self.identity, self._namespace, self._name)

    async def keep(self) -> None:
        """Renews until that has failed for `renew` seconds; then, and not later, this process no longer leads."""
        try:
            while True:
                async with self._renewed():
                    if not self._no_answer:  # otherwise the time for another attempt is short
                        await self._clock.sleep(self.times.retry)
                    await self._try()
                if self.holder not in ("", self.identity):
                    break
        except TimeoutError:
            pass
        self.elected = False
        log.warning("%s no longer leads; the lease is held by %r", self.identity, self.holder)

    async def release(self) -> None:
        """Releases the Lease, so that another replica need not wait for it to expire."""
        await self._stop_keeping()
        if self.elected:
            self.elected = False
            await self._release()
        await self._client.close()

    async def stop(self) -> None:
        """Stops renewing; a Lease that was not released expires."""
        await self._stop_keeping()
        await self._client.close()

    async def _stop_keeping(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Acquires the Lease, leads until it is lost, then returns: a process that lost its Lease restarts.

        The Lease is still renewed afterwards, for what is in progress, until it is lost or `release` is called.
        """
        await self.acquire()
        work = asyncio.ensure_future(lead())
        keep = self._keeping = asyncio.create_task(self.keep())
        try:
            done, _ = await asyncio.wait({work, keep}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _renewed(self) -> AsyncIterator[None]:
        """Raises TimeoutError `renew` seconds after the last renewal."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as limit:
            call_off = self._clock.call_at(self._ends_at, lambda: limit.reschedule(loop.time()))
            try:
                yield
            finally:
                call_off()

    async def _release(self) -> None:
        try:
            lease = await self._get()
            if lease is not None and lease.spec.holder_identity == self.identity:
                lease.spec = _Spec("", 1, lease.spec.acquire_time, self._now(), lease.spec.lease_transitions)
                await self._put(lease)
        except (CaricoError, OSError, msgspec.DecodeError) as error:
            log.warning("the lease could not be released: %s", error)

    async def _try(self) -> bool:
        started = self._clock.monotonic()
        try:
            lease = await self._get()
            if lease is None:
                lease = _Lease(_Meta(self._name, self._namespace), _Spec(lease_transitions=0, acquire_time=self._now()))
            elif not self._may_take(lease.spec):
                self.holder = lease.spec.holder_identity or ""
                return False
            self._take(lease.spec)
            await self._put(lease)
        except (CaricoError, OSError, msgspec.DecodeError) as error:
            self._no_answer = isinstance(error, TimeoutError)
            if not (isinstance(error, ApiError) and error.status == 409):
                why = str(error) or type(error).__name__
                log.warning("lease %s/%s: %s", self._namespace, self._name, why)
            return False
        self.holder, self.renewed_at, self._no_answer = self.identity, started, False
        return True

    def _may_take(self, spec: _Spec) -> bool:
        record = msgspec.json.encode(spec)
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock.monotonic()
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return True
        return self._clock.monotonic() - self._seen_at > (spec.lease_duration_seconds or self.times.duration)

    def _take(self, spec: _Spec) -> None:
        now = self._now()
        if spec.holder_identity != self.identity:
            spec.acquire_time = now
            spec.lease_transitions = (spec.lease_transitions or 0) + (1 if spec.holder_identity is not None else 0)
        spec.holder_identity, spec.renew_time = self.identity, now
        spec.lease_duration_seconds = math.ceil(self.times.duration)

    def _now(self) -> str:
        return rfc3339(self._clock.wall())

    async def _get(self) -> _Lease | None:
        try:
            return decode(_Lease, await leases.read(self._client, self._namespace, self._name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _put(self, lease: _Lease) -> None:
        if lease.metadata.resource_version:
            await leases.update(self._client, self._namespace, self._name, msgspec.json.encode(lease))
        else:
            await leases.create(self._client, self._namespace, msgspec.json.encode(_without_version(lease)))


def _without_version(lease: _Lease) -> dict[str, object]:
    plain: dict[str, dict[str, object]] = msgspec.to_builtins(lease)
    plain["metadata"].pop("resourceVersion")
    return dict(plain)
