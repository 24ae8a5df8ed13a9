"""The client's identity towards the API server, kept up to date while it is used.

A `ClientIdentity` is what requests and connections need: headers and a TLS context. `Credentials` returns the current
one. It is re-created, in a thread, when a file that it came from has changed, ahead of the expiry of a token, and once
after a 401 from the API server. While the old one is valid, a renewal ahead of expiry delays no request.
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
from carico.errors import CaricoError, CredentialError
from carico.kube.tls import Tls
from carico.kube.url import Url

log = logging.getLogger(__name__)

Headers = tuple[tuple[str, str], ...]
Stamps = list[tuple[int, ...]]  # per file: what changes when its content does

LOOK_EVERY = 1.0  # s between two checks whether a file has changed
READ_EVERY = 60.0  # s after which files are read even if they look unchanged
AHEAD = 120.0  # s before its expiry at which a token is replaced; a quarter of its lifetime if that is less
RETRY_AFTER = 10.0  # s after a failure, or after a 401, in which credentials are not requested again


@dataclass(frozen=True)
class Grant:
    """What a source of credentials returned: header lines, or a certificate with its key."""

    headers: Headers = ()
    pair: bytes = b""
    ends_at: float = math.inf  # s of the wall clock


def bearer(token: str, what: str) -> Headers:
    return (("Authorization", f"Bearer {checked(token, f'{what}: the token')}"),)


def checked(value: str, what: str) -> str:
    """Returns `value` if it is valid in a header line."""
    if not value.isprintable():
        raise CredentialError(f"{what} holds a line break or another control character")
    return value


class CredentialSource(Protocol):
    """Where credentials come from. `obtain` may block; that of a slow source is only called in a thread."""

    slow: bool  # it runs a program, so it is called rarely
    files: list[Path]  # that the credentials are read from

    def obtain(self) -> Grant: ...

    def stop(self) -> None:
        """Ends an `obtain` that is in progress."""


@dataclass(frozen=True, eq=False)
class ClientIdentity:
    headers: Headers
    tls: ssl.SSLContext | None
    renew_at: float  # s of monotonic time at which a new one is made while this one is used
    ends_at: float  # s of monotonic time after which it is unusable

    def same_as(self, other: ClientIdentity) -> bool:
        return self.headers == other.headers and self.tls is other.tls


class Credentials:
    """The API server's address and how to authenticate to it."""

    def __init__(
        self,
        server: Url,
        source: CredentialSource,
        tls: Tls | None = None,
        *,
        server_name: str = "",
        proxy: Url | None = None,
        headers: Headers = (),
        namespace: str = "default",
        clock: Clock | None = None,
    ) -> None:
        self.host, self.port, self.authority = server.host, server.port, server.authority
        # A plain request through a proxy contains the whole URL; one over TLS goes through a tunnel.
        self.prefix = str(server) if proxy is not None and tls is None else server.path
        self.server_name = server_name or server.host
        self.proxy, self.namespace = proxy, namespace
        self.source, self.tls, self.headers = source, tls, headers
        self._clock: Clock = clock or SystemClock()
        self._files = [*(tls.files if tls is not None else ()), *source.files]
        self._pause = RETRY_AFTER if source.slow else LOOK_EVERY
        self._stamps: Stamps = []
        self._look_at = self._retry_at = -math.inf
        self._identity: ClientIdentity | None = None
        self._loading: asyncio.Task[None] | None = None
        self._failure: CaricoError | None = None
        if not source.slow:
            self._take(*self._make())
        elif tls is not None:
            tls.context()  # so that errors in it are reported at the start

    async def identity(self) -> ClientIdentity:
        """The current one; CredentialError if there is none."""
        now = self._clock.monotonic()
        present = self._identity
        if present is None or now >= present.ends_at or self._files_changed(now):
            await self._renew_now(now)
            present = self._identity
            if present is None or now >= present.ends_at:
                raise CredentialError(str(self._failure)) from self._failure
        elif now >= present.renew_at:
            self._start(now)
        return present

    def certificate(self) -> bytes:
        """The current client certificate, in PEM form with its key; empty if there is none."""
        return self.tls.pair if self.tls is not None else b""

    async def renew(self, refused: ClientIdentity) -> bool:
        """After a 401 for `refused`: whether there is another identity now, so that a retry is worthwhile."""
        present, now = self._identity, self._clock.monotonic()
        if (present is None or present.same_as(refused)) and (self._files or self.source.slow):
            await self._renew_now(now)
            self._retry_at = max(self._retry_at, now + self._pause)
            present = self._identity
        return present is not None and not present.same_as(refused)

    def _files_changed(self, now: float) -> bool:
        """Whether a file has changed since it was read."""
        if not self._files or now < self._look_at:
            return False
        self._look_at = now + LOOK_EVERY
        return _stamps(self._files) != self._stamps

    async def _renew_now(self, now: float) -> None:
        if (loading := self._start(now)) is not None:
            await asyncio.shield(loading)

    def _start(self, now: float) -> asyncio.Task[None] | None:
        """The task that makes a new identity; None if the last failure or 401 is too recent."""
        if (self._loading is None or self._loading.done()) and now >= self._retry_at:
            self._loading = asyncio.get_running_loop().create_task(self._load())
            self._loading.add_done_callback(self._on_loaded)
        return self._loading

    def _on_loaded(self, task: asyncio.Task[None]) -> None:
        if self._loading is task:
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
            self.source.stop()  # its thread would delay the end of the process
            raise

    def _take(self, identity: ClientIdentity, stamps: Stamps) -> None:
        self._identity, self._stamps, self._failure = identity, stamps, None

    def _make(self) -> tuple[ClientIdentity, Stamps]:
        """Blocks. The files' stamps are taken before they are read: a change meanwhile is detected later."""
        stamps = _stamps(self._files)
        grant = self.source.obtain()
        tls = self.tls.context(grant.pair) if self.tls is not None else None
        renew_at, ends_at = self._times(grant.ends_at - self._clock.wall())
        return ClientIdentity(grant.headers + self.headers, tls, renew_at, ends_at), stamps

    def _times(self, left: float) -> tuple[float, float]:
        """When to renew and when it ends, for credentials that are valid for `left` s."""
        now = self._clock.monotonic()
        if left <= 0:  # the clocks may differ: let the API server decide, but do not call the source for every request
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
