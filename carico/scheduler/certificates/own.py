"""A scheduler's own serving certificate and the authorities that it trusts, read over the API and kept in memory.

They are given to gRPC and the HTTP servers as files in memory, which these read again at each connection, as they do
with files that others mount. Until the first ones can be read there is a certificate that no client trusts, so that
the ports are open: a client tries again until the real one is there.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from pathlib import Path

import msgspec

from carico.clock import Clock
from carico.errors import CaricoError, UsageError
from carico.kube import calls, own_objects
from carico.kube.client import Client
from carico.scheduler.certificates.issuer import BUNDLE, CERTIFICATE, KEY
from carico.settings import SchedulerSettings
from carico.wire import authorities
from carico.wire.authorities import PemPair

log = logging.getLogger(__name__)

LOOK_EVERY = 30.0  # s
SOON = 1.0  # s while there is none
TEMPORARY = 3600.0  # s of life of the certificate that no client trusts


class MemoryFile:
    """A file that is on no disk, and that only this process can open by its path."""

    def __init__(self, name: str) -> None:
        if sys.platform != "linux":
            raise UsageError("issue_certificates needs Linux; give tls_cert and tls_key instead")
        self._number = os.memfd_create(name)
        self.path = Path(f"/proc/self/fd/{self._number}")

    def write(self, text: str) -> None:
        content = text.encode()
        os.pwrite(self._number, content, 0)
        os.ftruncate(self._number, len(content))

    def close(self) -> None:
        os.close(self._number)


class OwnCertificate:
    """`settings` are those of the process, with its certificate filled in."""

    def __init__(self, settings: SchedulerSettings, clock: Clock) -> None:
        check(settings)
        self._cert, self._key, self._ca = (MemoryFile(f"carico-{name}") for name in ("cert", "key", "ca"))
        self._clock, self._trusts_own = clock, settings.tls_ca is None
        unknown = authorities.new_authority(clock.wall(), TEMPORARY)  # to all others; its key is not kept
        self._put(authorities.issue(unknown, ["not-issued-yet"], clock.wall(), TEMPORARY))
        self._ca.write(unknown.cert)
        self._problem = ""
        self.is_there = False
        found = dataclasses.replace(settings, tls_cert=self._cert.path, tls_key=self._key.path)
        self.settings = dataclasses.replace(found, tls_ca=self._ca.path) if self._trusts_own else found

    async def run(self, client: Client) -> None:
        while True:
            try:
                await self.look(client)
                self._problem = ""
            except (CaricoError, OSError, msgspec.DecodeError) as error:
                why = str(error) or type(error).__name__
                if why != self._problem:
                    log.warning("this replica's certificate cannot be read: %s; trying again", why)
                self._problem = why
            await self._clock.sleep(LOOK_EVERY if self.is_there else SOON)

    async def look(self, client: Client) -> None:
        """Takes what is stored, if it can be used."""
        found = await own_objects.read_secret(client, client.namespace, calls.SCHEDULER_SECRET)
        bundle = await own_objects.read_config_map(client, client.namespace, calls.BUNDLE_CONFIG_MAP)
        if bundle is not None and (trusted := "".join(authorities.split(bundle.data.get(BUNDLE, "")))):
            self._ca.write(trusted)
        if found is None:
            return
        pair = PemPair(found.data.get(CERTIFICATE, ""), found.data.get(KEY, ""))
        if authorities.is_pair(pair):
            self._put(pair)
            self.is_there = True

    def why_not_ready(self) -> str | None:
        return None if self.is_there else f"there is no certificate in the Secret {calls.SCHEDULER_SECRET} yet"

    def close(self) -> None:
        for file in (self._cert, self._key, self._ca):
            file.close()

    def _put(self, pair: PemPair) -> None:
        self._key.write(pair.key)
        self._cert.write(pair.cert)


def check(settings: SchedulerSettings) -> None:
    if settings.plaintext:
        raise UsageError("issue_certificates and plaintext exclude each other")
    if settings.tls_cert is not None or settings.tls_key is not None:
        raise UsageError("issue_certificates makes this scheduler's certificate too; drop tls_cert and tls_key, or it")


def dns_names(service: str, namespace: str, domain: str) -> tuple[str, ...]:
    """The names of a Service, as pods can write them.

    >>> dns_names("carico-scheduler", "carico-system", "cluster.local")[-1]
    'carico-scheduler.carico-system.svc.cluster.local'
    """
    inside = (service, f"{service}.{namespace}", f"{service}.{namespace}.svc")
    return (*inside, f"{inside[-1]}.{domain}") if domain else inside
