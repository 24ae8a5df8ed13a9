"""The issuer and the scheduler's own certificate, on an API server."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carico.clock import SystemClock
from carico.errors import ApiError, CaricoError, UsageError
from carico.kube import calls, own_objects
from carico.kube.calls import NeededBy
from carico.kube.client import Client
from carico.kube.credentials import fixed
from carico.scheduler.certificates import own
from carico.scheduler.certificates.issuer import Issuer, Unreadable
from carico.scheduler.certificates.maker import CertificateMaker
from carico.scheduler.certificates.own import OwnCertificate
from carico.scheduler.certificates.rotation import Lifetimes
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, embedded_api_server
from carico.wire import authorities
from carico.wire.server import GrpcServer
from harness.kube.request_log import RecordingNetwork, name_of_call
from harness.wire.report_streams import ended, running

DAY = 86400.0
TIMES = Lifetimes(30 * DAY, 365 * DAY, DAY)
NAMES = {calls.AGGREGATOR_SECRET: ("aggregator",), calls.SCHEDULER_SECRET: ("scheduler",)}
SECRETS, CONFIG_MAPS = "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/configmaps"


@asynccontextmanager
async def api(folder: Path) -> AsyncIterator[tuple[Client, Callable[[], Client]]]:
    async with embedded_api_server(folder) as (server, user):
        others: list[Client] = []

        def another() -> Client:
            others.append(Client(fixed(server.address, server.token)))
            return others[-1]

        try:
            yield user, another
        finally:
            for client in others:
                await client.close()


async def stored(client: Client, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await client.call("GET", path))
    return found


async def serving(client: Client, name: str) -> authorities.PemPair:
    data = (await stored(client, f"{SECRETS}/{name}"))["data"]
    return authorities.PemPair(*(base64.b64decode(data[key]).decode() for key in ("tls.crt", "tls.key")))


def issuer(client: Client, clock: Any, leads: Callable[[], bool] = lambda: True) -> Issuer:
    return Issuer(client, NAMES, TIMES, clock, leads)


@running
async def test_what_is_made_and_renewed(tmp_path: Path) -> None:
    async with api(tmp_path) as (user, _):
        clock = ManualClock(wall=1.8e9)
        leader = issuer(user, clock)
        await leader.round()
        assert leader.writes == 4
        await leader.round()
        assert leader.writes == 4
        first = await serving(user, calls.SCHEDULER_SECRET)
        secret = await stored(user, f"{SECRETS}/{calls.SCHEDULER_SECRET}")
        assert secret["type"] == "kubernetes.io/tls"
        assert secret["metadata"]["labels"]["app.kubernetes.io/part-of"] == "carico"
        trusted = (await stored(user, f"{CONFIG_MAPS}/carico-ca"))["data"]["ca.pem"]
        assert "PRIVATE" not in trusted
        assert authorities.is_issued_by(first.cert, trusted)
        assert leader.authority.decode() == trusted
        clock.advance(21 * DAY)
        await leader.round()
        assert leader.writes == 6
        assert await serving(user, calls.SCHEDULER_SECRET) != first


@running
async def test_two_replicas_that_both_act_as_leader_converge(tmp_path: Path) -> None:
    async with api(tmp_path) as (user, another):
        clock = ManualClock(wall=1.8e9)
        both = [issuer(another(), clock), issuer(another(), clock)]
        for _ in range(30):
            await asyncio.gather(*(one.round() for one in both))
            clock.advance(20 * DAY)
        for one in both:
            await one.round()
        written = sum(one.writes for one in both)
        for one in both:
            await one.round()
        assert sum(one.writes for one in both) == written
        trusted = authorities.split((await stored(user, f"{CONFIG_MAPS}/carico-ca"))["data"]["ca.pem"])
        for name in NAMES:
            cert = (await serving(user, name)).cert
            assert any(authorities.is_issued_by(cert, one) for one in trusted)


@running
async def test_the_list_of_calls_is_what_an_issuer_sends(tmp_path: Path) -> None:
    """Also in the names of its objects, to which its Role is limited."""
    network, clock = RecordingNetwork(), ManualClock(wall=1.8e9)
    async with embedded_api_server(tmp_path) as (server, user):
        client = Client(fixed(server.address, server.token), connect=network.connect)
        leader = issuer(client, clock)
        for _ in range(20):
            await leader.round()
            clock.advance(20 * DAY)
        await client.close()
        listed = {name_of_call(call) for call in calls.CALLS if NeededBy.CERTIFICATES in call.needed_by}
        assert network.names() == listed
        for path, kind in ((SECRETS, calls.SECRETS), (CONFIG_MAPS, calls.CONFIG_MAPS)):
            items = (await stored(user, path))["items"]
            assert {item["metadata"]["name"] for item in items} <= set(calls.OWN_NAMES[kind])


@running
async def test_only_the_leader_writes(tmp_path: Path) -> None:
    async with api(tmp_path) as (user, _):
        standby = issuer(user, SystemClock(), lambda: False)
        await standby.round()
        task = asyncio.create_task(standby.run())
        await asyncio.sleep(0.2)
        await ended(task)
        assert standby.writes == 0
        assert await own_objects.read_secret(user, "default", "carico-ca") is None


@running
async def test_what_was_deleted_or_spoilt_is_made_again(tmp_path: Path) -> None:
    async with api(tmp_path) as (user, _):
        leader = issuer(user, SystemClock())
        await leader.round()
        for path in (f"{SECRETS}/{calls.AGGREGATOR_SECRET}", f"{CONFIG_MAPS}/carico-ca"):
            await user.call("DELETE", path)
        spoilt = await stored(user, f"{SECRETS}/{calls.SCHEDULER_SECRET}")
        spoilt["data"]["tls.key"] = base64.b64encode(b"\xff\xfe").decode()
        spoilt["metadata"]["annotations"] = {"team": "ours"}
        await user.call("PUT", f"{SECRETS}/{calls.SCHEDULER_SECRET}", json.dumps(spoilt).encode())
        await leader.round()
        trusted = (await stored(user, f"{CONFIG_MAPS}/carico-ca"))["data"]["ca.pem"]
        for name in NAMES:
            pair = await serving(user, name)
            assert authorities.is_pair(pair)
            assert authorities.is_issued_by(pair.cert, trusted)
        kept = await stored(user, f"{SECRETS}/{calls.SCHEDULER_SECRET}")
        assert kept["metadata"]["annotations"] == {"team": "ours"}


@running
async def test_a_secret_of_another_version_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with api(tmp_path) as (user, _):
        leader = issuer(user, SystemClock())
        await leader.round()
        for content in (b"{}", b'{"authorities": [], "version": 2}', b"", b"[1"):
            secret = await stored(user, f"{SECRETS}/carico-ca")
            secret["data"]["authorities.json"] = base64.b64encode(content).decode()
            await user.call("PUT", f"{SECRETS}/carico-ca", json.dumps(secret).encode())
            with pytest.raises(Unreadable, match="no certificate is renewed until it is deleted or restored"):
                await leader.round()
        with caplog.at_level(logging.WARNING):
            task = asyncio.create_task(leader.run())
            while not caplog.messages:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.01)
            await ended(task)
        assert "holds no authorities of this version" in caplog.text
        assert leader.writes == 4


class Faulty:
    """A client whose writes are lost, arrive without a response, or find a newer object."""

    def __init__(self, client: Client, faults: list[str]) -> None:
        self._client, self.faults, self.namespace = client, faults, client.namespace

    async def call(self, method: str, path: str, body: bytes = b"", **more: Any) -> bytes:
        fault = self.faults.pop(0) if self.faults and method != "GET" else ""
        if fault == "lost":
            raise OSError("the API server is away")
        if fault == "conflict":
            raise ApiError(409, "Conflict", "the object has been modified")
        answer = await self._client.call(method, path, body, **more)
        if fault == "no answer":
            raise TimeoutError
        return answer


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("fault", ["lost", "no answer", "conflict"])
def test_a_write_that_fails_is_done_in_the_next_round(tmp_path: Path, fault: Any, at: Any) -> None:
    @running
    async def scenario() -> None:
        async with api(tmp_path) as (user, _):
            faulty: Any = Faulty(user, [""] * at + [fault])
            leader = Issuer(faulty, NAMES, TIMES, SystemClock(), lambda: True)
            try:
                await leader.round()
            except (CaricoError, OSError):
                assert fault != "conflict"
                await leader.round()
            trusted = (await stored(user, f"{CONFIG_MAPS}/carico-ca"))["data"]["ca.pem"]
            for name in NAMES:
                assert authorities.is_issued_by((await serving(user, name)).cert, trusted)

    scenario()


# --- the scheduler's own ---


@running
async def test_a_replica_reads_its_own_certificate_over_the_api(tmp_path: Path) -> None:
    async with api(tmp_path) as (user, _):
        mine = OwnCertificate(SchedulerSettings(issue_certificates=True, token_audience="carico"), SystemClock())
        files = mine.settings
        assert files.tls_cert is not None
        assert files.tls_key is not None
        try:
            before = files.tls_cert.read_bytes()
            await mine.look(user)
            assert files.tls_cert.read_bytes() == before
            assert "carico-scheduler-tls" in (mine.why_not_ready() or "")
            maker = CertificateMaker(mine, user, SystemClock(), lambda: True)
            await maker.issuer.round()
            await mine.look(user)
            assert maker.why_not_ready() is None
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(files.tls_cert, files.tls_key)
            context.load_verify_locations(mine.settings.tls_ca)
            found = authorities.facts(files.tls_cert.read_text())
            assert found.names == set(own.dns_names("carico-scheduler", "default", "cluster.local"))
            await user.call("DELETE", f"{SECRETS}/{calls.SCHEDULER_SECRET}")
            await mine.look(user)
            assert maker.why_not_ready() is None, "it goes on with the one that it has"
        finally:
            mine.close()


@running
async def test_ports_are_open_before_the_first_certificate() -> None:
    mine = OwnCertificate(SchedulerSettings(issue_certificates=True, allow_anonymous_clients=True), SystemClock())
    try:
        server = GrpcServer("127.0.0.1:0", mine.settings, {})
        assert await server.start() > 0
        await server.stop()
    finally:
        mine.close()


def test_settings_that_exclude_each_other() -> None:
    for changes, why in (
        ({"plaintext": True}, "plaintext exclude"),
        ({"tls_cert": Path("/x")}, "drop tls_cert and tls_key"),
    ):
        with pytest.raises(UsageError, match=why):
            OwnCertificate(SchedulerSettings(issue_certificates=True, **changes), SystemClock())
    assert own.dns_names("s", "n", "") == ("s", "s.n", "s.n.svc")
    [(names, text)] = SchedulerSettings(issue_certificates=True, authority_lifetime=DAY).conflicts()
    assert "authority_lifetime" in names
    assert "three times" in text
