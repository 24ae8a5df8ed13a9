"""Leader election on a Lease, so that one of several replicas binds.

No clock of another machine is believed: a Lease counts as abandoned once its record has not changed for its duration
*as this process saw it*. The leader renews every `retry` seconds and lays its office down by itself when it could not
renew for `renew` seconds: before anybody else can take it, because renew < duration.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from carico.clock import Clock
from carico.errors import CaricoError
from carico.kube.binding import now_text
from carico.kube.client import ApiError, Client

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseTimes:
    duration: float = 15.0  # s without a renewal after which others may take the Lease
    renew: float = 10.0  # s without success after which the leader steps down
    retry: float = 2.0  # s between two tries


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    resource_version: str = ""


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _Meta
    spec: _Spec
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class Election:
    """`run` calls `lead` while this process holds the Lease, and cancels it when the Lease is lost."""

    def __init__(
        self, client: Client, namespace: str, name: str, identity: str, clock: Clock, times: LeaseTimes | None = None
    ) -> None:
        self._client, self._clock, self.times = client, clock, times or LeaseTimes()
        self._namespace, self._name, self.identity = namespace, name, identity
        self._seen: bytes = b""  # the record as it was last seen to change …
        self._seen_at = float("-inf")  # … and when, monotonic
        self.leading = False
        self.holder = ""
        self.renewed_at = float("-inf")  # s, monotonic

    @property
    def _path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"

    async def acquire(self) -> None:
        """Returns once this process is the leader."""
        while not await self._try():
            await self._clock.sleep(self.times.retry * (1 + 0.2 * random.random()))
        self.leading = True
        log.info("%s leads now (lease %s/%s)", self.identity, self._namespace, self._name)

    async def keep(self) -> None:
        """Renews until that has failed for too long."""
        while self._clock.monotonic() - self.renewed_at < self.times.renew:
            await self._clock.sleep(self.times.retry)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.times.renew):  # an answer that does not come is a failure too
                    await self._try()
            if self.holder not in ("", self.identity):
                break
        self.leading = False
        log.warning("%s no longer leads; the lease is held by %r", self.identity, self.holder)

    async def release(self) -> None:
        """Gives the Lease back, so that another replica need not wait for it to run out."""
        if not self.leading:
            return
        self.leading = False
        try:
            lease = await self._get()
            if lease is not None and lease.spec.holder_identity == self.identity:
                lease.spec = _Spec("", 1, lease.spec.acquire_time, self._now(), lease.spec.lease_transitions)
                await self._put(lease)
        except (CaricoError, OSError) as error:
            log.warning("the lease could not be given back: %s", error)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Acquire, lead until the Lease is lost, then return: a process that lost its Lease starts anew."""
        await self.acquire()
        work = asyncio.ensure_future(lead())
        keep = asyncio.ensure_future(self.keep())
        try:
            done, _ = await asyncio.wait({work, keep}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (work, keep):
                task.cancel()
            await asyncio.gather(work, keep, return_exceptions=True)

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
        except (CaricoError, OSError) as error:
            if not (isinstance(error, ApiError) and error.status == 409):
                why = str(error) or type(error).__name__
                log.warning("lease %s/%s: %s", self._namespace, self._name, why)
            return False
        self.holder, self.renewed_at = self.identity, started
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
        spec.lease_duration_seconds = max(1, round(self.times.duration))

    def _now(self) -> str:
        return now_text(self._clock.wall())

    async def _get(self) -> _Lease | None:
        try:
            return msgspec.json.decode(await self._call("GET", f"{self._path}/{self._name}"), type=_Lease)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _put(self, lease: _Lease) -> None:
        body = msgspec.json.encode(lease)
        if lease.metadata.resource_version:
            await self._call("PUT", f"{self._path}/{self._name}", body)
        else:
            await self._call("POST", self._path, msgspec.json.encode(_without_version(lease)))

    async def _call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Urgent: behind hundreds of bindings that wait for the rate limit, a renewal would come too late."""
        return await self._client.call(method, path, body, urgent=True)


def _without_version(lease: _Lease) -> dict[str, object]:
    plain: dict[str, dict[str, object]] = msgspec.to_builtins(lease)
    plain["metadata"].pop("resourceVersion")
    return dict(plain)
