"""The leader makes and renews authority and certificates; any other replica does nothing here.

It checks what is stored every LOOK_EVERY, so a deleted object is restored within that time. A write is refused by the
API server when the object has changed since it was read, and by the fence when this replica no longer leads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from carico.backoff import doubled, spread
from carico.clock import Clock
from carico.errors import ApiError, CaricoError, FencedError
from carico.kube import calls, own_objects
from carico.kube.client import Client
from carico.kube.own_objects import OwnObject
from carico.scheduler.certificates.rotation import (
    Authorities,
    Lifetimes,
    Stored,
    Write,
    WriteAuthorities,
    WriteBundle,
    next_write,
)
from carico.wire.authorities import PemPair

log = logging.getLogger(__name__)

LOOK_EVERY = 60.0  # s
STANDBY_EVERY = 1.0  # s between two looks whether this replica leads now
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # s after a failure
WRITES_IN_A_ROW = 30  # far more than any rotation needs
AUTHORITIES, BUNDLE, CERTIFICATE, KEY = "authorities.json", "ca.pem", "tls.crt", "tls.key"
OPAQUE, TLS = "Opaque", "kubernetes.io/tls"


class Unreadable(CaricoError):
    """The Secret of the authorities holds something that this version did not write."""


class Issuer:
    """`names`: the DNS names of each server, by the name of its Secret."""

    def __init__(
        self,
        client: Client,
        names: Mapping[str, tuple[str, ...]],
        times: Lifetimes,
        clock: Clock,
        leads: Callable[[], bool],
    ) -> None:
        self._client, self._namespace, self._names = client, client.namespace, names
        self._times, self._clock, self._leads = times, clock, leads
        self._objects: dict[str, OwnObject | None] = {}  # by kind and name, as they were last read
        self._problem = ""
        self.authority = b""  # the certificate of the authority that signs; empty where it is not known
        self.writes = 0

    async def run(self) -> None:
        failures = 0
        while True:
            if not self._leads():
                self.authority = b""
                await self._clock.sleep(STANDBY_EVERY)
                continue
            try:
                await self.round()
                failures, self._problem = 0, ""
            except (CaricoError, OSError, msgspec.DecodeError) as error:
                failures += 1
                self._complain(str(error) or type(error).__name__)
            pause = doubled(FIRST_PAUSE, LONGEST_PAUSE, failures) if failures else LOOK_EVERY
            await self._clock.sleep(spread(pause))

    async def round(self) -> None:
        """Does every write that is due."""
        for _ in range(WRITES_IN_A_ROW):
            stored = await self._read()
            write = next_write(stored, self._names, self._times, self._clock.wall())
            if write is None:
                return
            try:
                await self._do(write)
            except FencedError:
                return
            except ApiError as error:
                if error.status not in (404, 409):  # changed, made or deleted meanwhile: look again
                    raise
        raise CaricoError(f"certificates: {WRITES_IN_A_ROW} writes did not lead anywhere; does another program write?")

    async def _read(self) -> Stored:
        client, namespace = self._client, self._namespace
        secret = self._objects["ca"] = await own_objects.read_secret(client, namespace, calls.AUTHORITY_SECRET)
        bundle = self._objects["bundle"] = await own_objects.read_config_map(client, namespace, calls.BUNDLE_CONFIG_MAP)
        serving: dict[str, PemPair | None] = {}
        for name in self._names:
            found = self._objects[name] = await own_objects.read_secret(client, namespace, name)
            pair = PemPair(found.data.get(CERTIFICATE, ""), found.data.get(KEY, "")) if found is not None else None
            serving[name] = pair
        known = None if secret is None else self._decoded(secret)
        signs = known.of("signs") if known is not None else None
        self.authority = signs.cert.encode() if signs is not None else b""
        return Stored(known, bundle.data.get(BUNDLE, "") if bundle is not None else None, serving)

    def _decoded(self, secret: OwnObject) -> Authorities:
        try:
            found = msgspec.json.decode(secret.data.get(AUTHORITIES, ""), type=Authorities)
            if found.version == 1:
                return found
            why = f"version {found.version}"
        except msgspec.DecodeError as error:
            why = str(error)
        raise Unreadable(
            f"the Secret {self._namespace}/{calls.AUTHORITY_SECRET} holds no authorities of this version ({why}); "
            "no certificate is renewed until it is deleted or restored"
        )

    async def _do(self, write: Write) -> None:
        client, namespace = self._client, self._namespace
        if isinstance(write, WriteAuthorities):
            name, content = calls.AUTHORITY_SECRET, {AUTHORITIES: msgspec.json.encode(write.content).decode()}
            await own_objects.write_secret(client, namespace, name, OPAQUE, content, self._objects["ca"], self._leads)
        elif isinstance(write, WriteBundle):
            name, content = calls.BUNDLE_CONFIG_MAP, {BUNDLE: write.content}
            await own_objects.write_config_map(client, namespace, name, content, self._objects["bundle"], self._leads)
        else:
            name, content = write.secret, {CERTIFICATE: write.content.cert, KEY: write.content.key}
            await own_objects.write_secret(client, namespace, name, TLS, content, self._objects[name], self._leads)
        self.writes += 1
        log.info("certificates: %s/%s is written: %s", namespace, name, write.why)

    def _complain(self, why: str) -> None:
        if why != self._problem:
            log.warning("certificates: %s; trying again", why)
        self._problem = why
