"""Who we are to the API server, kept up to date while we speak to it.

An `Identity` is what requests and connections need: headers and a TLS context. `Credentials` gives the present one.
It is made anew, in a thread, when a file that it came from has changed, ahead of the end of a token, and once when the
API server says 401. As long as the old one is good nobody waits for the new one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from carico.clock import Clock, SystemClock
from carico.errors import CaricoError
from carico.kube.chunked import HttpError
from carico.kube.tls import Tls
from carico.kube.url import Url

log = logging.getLogger(__name__)

Headers = tuple[tuple[str, str], ...]
Stamps = list[tuple[int, ...]]  # per file: what changes when its content does

LOOK_EVERY = 1.0  # s between two looks at whether a file has changed
READ_EVERY = 60.0  # s after which files are read even if they look the same
AHEAD = 120.0  # s before its end at which a token is replaced; of a short-lived one a quarter of its life
RETRY_AFTER = 10.0  # s after a failure, or after a 401, in which credentials are not asked for again


class CredentialError(HttpError):
    """No credentials could be had, so nothing was sent. To be tried again, like a connection that failed."""


@dataclass(frozen=True)
class Grant:
    """What a source of credentials gave: header lines, or a certificate with its key."""

    headers: Headers = ()
    pair: bytes = b""
    ends_at: float = math.inf  # s of the wall clock


def bearer(token: str, what: str) -> Headers:
    return (("Authorization", f"Bearer {checked(token, f'{what}: the token')}"),)


def checked(value: str, what: str) -> str:
    """Fit for a header line."""
    if not value.isprintable():
        raise CredentialError(f"{what} holds a line break or another control character")
    return value


class Source(Protocol):
    """Where credentials come from. `obtain` may block; that of a slow source is only called in a thread."""

    slow: bool  # it runs a program: not to be asked at every opportunity
    files: list[Path]  # that the credentials are read from

    def obtain(self) -> Grant: ...

    def stop(self) -> None:
        """Ends an `obtain` that is under way."""


@dataclass(frozen=True, eq=False)
class Identity:
    headers: Headers
    tls: ssl.SSLContext | None
    renew_at: float  # s of monotonic time at which a new one is made while this one serves
    ends_at: float  # s of monotonic time after which it is of no use

    def same_as(self, other: Identity) -> bool:
        return self.headers == other.headers and self.tls is other.tls


class Credentials:
    """Where the API server is and how to speak to it."""

    def __init__(
        self,
        server: Url,
        source: Source,
        tls: Tls | None = None,
        *,
        server_name: str = "",
        proxy: Url | None = None,
        headers: Headers = (),
        namespace: str = "default",
        clock: Clock | None = None,
    ) -> None:
        self.host, self.port, self.authority = server.host, server.port, server.authority
        # A plain request through a proxy names the whole address; one over TLS goes through a tunnel.
        self.prefix = str(server) if proxy is not None and tls is None else server.path
        self.server_name = server_name or server.host
        self.proxy, self.namespace = proxy, namespace
        self.source, self.tls, self.headers = source, tls, headers
        self._clock: Clock = clock or SystemClock()
        self._files = [*(tls.files if tls is not None else ()), *source.files]
        self._pause = RETRY_AFTER if source.slow else LOOK_EVERY
        self._stamps: Stamps = []
        self._look_at = self._retry_at = -math.inf
        self._identity: Identity | None = None
        self._loading: asyncio.Task[None] | None = None
        self._failure: CaricoError | None = None
        if not source.slow:
            self._take(*self._make())
        elif tls is not None:
            tls.context()  # so that what is wrong with it is said at the start

    async def identity(self) -> Identity:
        """The present one; CredentialError if there is none."""
        now = self._clock.monotonic()
        present = self._identity
        if present is None or now >= present.ends_at or self._changed(now):
            await self._renewed(now)
            present = self._identity
            if present is None or now >= present.ends_at:
                raise CredentialError(str(self._failure)) from self._failure
        elif now >= present.renew_at:
            self._start(now)
        return present

    def certificate(self) -> bytes:
        """The client certificate that is shown now, in PEM form with its key; empty if there is none."""
        return self.tls.pair if self.tls is not None else b""

    async def renew(self, refused: Identity) -> bool:
        """After a 401 for `refused`: whether there is another identity now, so that it is worth another try."""
        present, now = self._identity, self._clock.monotonic()
        if (present is None or present.same_as(refused)) and (self._files or self.source.slow):
            await self._renewed(now)
            self._retry_at = max(self._retry_at, now + self._pause)
            present = self._identity
        return present is not None and not present.same_as(refused)

    def _changed(self, now: float) -> bool:
        """Whether a file is another than when it was read."""
        if not self._files or now < self._look_at:
            return False
        self._look_at = now + LOOK_EVERY
        return _stamps(self._files) != self._stamps

    async def _renewed(self, now: float) -> None:
        if (loading := self._start(now)) is not None:
            await asyncio.shield(loading)

    def _start(self, now: float) -> asyncio.Task[None] | None:
        """The making of a new identity; None if the last failure or 401 is too short a while ago."""
        if self._loading is None and now >= self._retry_at:
            self._loading = asyncio.get_running_loop().create_task(self._load())
            self._loading.add_done_callback(self._loaded)
        return self._loading

    def _loaded(self, _: asyncio.Task[None]) -> None:
        self._loading = None

    async def _load(self) -> None:
        try:
            self._take(*await asyncio.to_thread(self._make))
        except CaricoError as error:
            self._retry_at = self._clock.monotonic() + self._pause
            if self._identity is not None and str(error) != str(self._failure):
                log.warning("credentials could not be renewed: %s; trying again", error)
            self._failure = error
        except asyncio.CancelledError:
            self.source.stop()  # its thread would hold up the end of the process
            raise

    def _take(self, identity: Identity, stamps: Stamps) -> None:
        self._identity, self._stamps, self._failure = identity, stamps, None

    def _make(self) -> tuple[Identity, Stamps]:
        """Blocks. What the files look like is noted before they are read: a change meanwhile is seen later."""
        stamps = _stamps(self._files)
        grant = self.source.obtain()
        tls = self.tls.context(grant.pair) if self.tls is not None else None
        renew_at, ends_at = self._times(grant.ends_at - self._clock.wall())
        return Identity(grant.headers + self.headers, tls, renew_at, ends_at), stamps

    def _times(self, left: float) -> tuple[float, float]:
        """When to renew and when it ends, for credentials that are good for `left` s."""
        now = self._clock.monotonic()
        if left <= 0:  # the clocks may differ: let the API server judge, but do not ask the source at every request
            log.warning("the credentials are %.0f s past their end; log in again, or set this machine's clock", -left)
            return now + self._pause, now + self._pause
        reread = READ_EVERY if self._files else math.inf
        return now + min(reread, left - min(AHEAD, left / 4)), now + left


def _stamps(files: list[Path]) -> Stamps:
    return [_stamp(file) for file in files]


def _stamp(file: Path) -> tuple[int, ...]:
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_size)
