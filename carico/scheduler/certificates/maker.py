"""What a scheduler runs for `issue_certificates`: the issuer, and its own certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from carico.clock import Clock
from carico.kube import calls
from carico.kube.client import Client
from carico.scheduler.certificates.issuer import Issuer
from carico.scheduler.certificates.own import OwnCertificate, dns_names
from carico.scheduler.certificates.rotation import Lifetimes
from carico.settings import SchedulerSettings

# Headless Services, by the Secret of their certificate.
SERVICES = {calls.AGGREGATOR_SECRET: "carico-aggregator", calls.SCHEDULER_SECRET: "carico-scheduler"}


class CertificateMaker:
    def __init__(self, own: OwnCertificate, client: Client, clock: Clock, leads: Callable[[], bool]) -> None:
        settings = own.settings
        domain, namespace = settings.cluster_domain, client.namespace
        names = {secret: dns_names(service, namespace, domain) for secret, service in SERVICES.items()}
        self.issuer = Issuer(client, names, lifetimes(settings), clock, leads)
        self._own, self._client = own, client

    async def run(self) -> None:
        await asyncio.gather(self.issuer.run(), self._own.run(self._client))

    def why_not_ready(self) -> str | None:
        return self._own.why_not_ready()


def lifetimes(settings: SchedulerSettings) -> Lifetimes:
    return Lifetimes(settings.certificate_lifetime, settings.authority_lifetime, settings.authority_distribution)
