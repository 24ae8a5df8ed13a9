"""Requests and connections of one identity: what happens to them when another one comes meanwhile."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from carico.errors import FencedError
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.http import HttpConnection
from carico.kube.identity import LOOK_EVERY, Credentials
from carico.kube.network import Connect, over_sockets
from carico.testing import ManualClock
from carico.wire.certificates import Authority, Pair
from harness.kube.recording import RecordingServer, until, write_kubeconfig


class Rotated:
    """A server that wants certificates, and a user whose certificate and token lie in files."""

    def __init__(self, folder: Path) -> None:
        (folder / "pki").mkdir()
        self._authority, self._folder = Authority(folder / "pki"), folder
        self.clock = ManualClock()
        self.server = RecordingServer(self._authority.issue("server", "127.0.0.1"), self._authority.cert)
        self._pairs: dict[str, Pair] = {name: self._authority.issue(name) for name in ("first", "second")}
        self.become("first")

    def become(self, name: str) -> None:
        pair = self._pairs[name]
        (self._folder / "mine.pem").write_bytes(pair.cert.read_bytes() + pair.key.read_bytes())
        (self._folder / "token").write_text(name)

    def credentials(self) -> Credentials:
        cluster = {"server": self.server.url, "certificate-authority": "pki/ca.pem"}
        user = {"client-certificate": "mine.pem", "client-key": "mine.pem", "tokenFile": "token"}
        return credentials.from_kubeconfig(write_kubeconfig(self._folder / "config", cluster, user), clock=self.clock)

    def only_second(self) -> None:
        """As after a rotation: the old certificate is no longer trusted."""
        self.server.status = lambda asked: 200 if asked.client == "second" else 401

    @property
    def seen(self) -> list[tuple[str, str]]:
        """Whose certificate and whose token came with each request."""
        return [(asked.client, asked.all("authorization")[0].removeprefix("Bearer ")) for asked in self.server.asked]

    def run(self, use: Callable[[Client], Awaitable[None]], connect: Connect = over_sockets) -> None:
        async def scenario() -> None:
            async with self.server:
                client = Client(self.credentials(), connect=connect)
                try:
                    await use(client)
                finally:
                    await client.close()

        asyncio.run(scenario())


@pytest.fixture
def rotated(tmp_path: Path) -> Rotated:
    return Rotated(tmp_path)


FIRST, SECOND = ("first", "first"), ("second", "second")


class Gate:
    """Holds the first connection back once it is made."""

    def __init__(self) -> None:
        self._count = 0
        self.free, self.made = asyncio.Event(), asyncio.Event()

    async def connect(
        self, where: Credentials, tls: ssl.SSLContext | None, session: ssl.SSLSession | None, patience: float
    ) -> HttpConnection:
        self._count += 1
        first = self._count == 1
        made = await over_sockets(where, tls, session, patience)
        if first:
            self.made.set()
            await self.free.wait()
        return made


@pytest.mark.parametrize("refused", [False, True])
def test_what_was_connecting_while_the_identity_changed_is_sent_by_the_old_one_alone(
    rotated: Rotated, refused: bool
) -> None:
    """Never the new token over a connection with the old certificate; nor is such a connection kept."""

    gate = Gate()

    async def use(client: Client) -> None:
        late = asyncio.create_task(client.call("GET", "/late"))
        await gate.made.wait()
        rotated.become("second")
        rotated.clock.advance(LOOK_EVERY)
        await client.call("GET", "/meanwhile")
        if refused:
            rotated.only_second()
        gate.free.set()
        await late
        for _ in range(2):
            await asyncio.gather(*(client.call("GET", "/later") for _ in range(3)))
        assert rotated.seen == [SECOND, FIRST] + [SECOND] * (7 if refused else 6)

    rotated.run(use, gate.connect)


def test_a_401_is_answered_with_the_new_certificate_on_a_new_connection(rotated: Rotated) -> None:
    async def use(client: Client) -> None:
        await asyncio.gather(*(client.call("GET", "/before") for _ in range(3)))
        rotated.become("second")
        rotated.only_second()
        await client.call("GET", "/after")  # too early to look at the files by itself
        assert rotated.seen == [FIRST] * 4 + [SECOND]
        assert len(client._pool.idle) == 1

    rotated.run(use)


def test_a_fence_is_checked_again_before_the_second_try(rotated: Rotated) -> None:
    async def use(client: Client) -> None:
        answers = iter([True, False])
        await client.call("GET", "/before")
        rotated.become("second")
        rotated.only_second()
        with pytest.raises(FencedError):
            await client.call("POST", "/bind", urgent=True, fence=lambda: next(answers))
        assert rotated.seen == [FIRST] * 2
        assert len(client._pool.idle) == 1
        await client.call("GET", "/later")
        assert rotated.server.connections == 2

    rotated.run(use)


def test_a_client_apart_has_the_same_identity_and_connections_of_its_own(rotated: Rotated) -> None:
    async def use(client: Client) -> None:
        apart = client.apart(patience=60)
        await client.call("GET", "/")
        await apart.call("GET", "/lease")
        rotated.become("second")
        rotated.only_second()
        await apart.call("PUT", "/lease")
        await client.call("GET", "/")
        assert rotated.seen == [FIRST, FIRST, FIRST, SECOND, SECOND]
        assert rotated.server.connections == 4
        await apart.close()

    rotated.run(use)


def test_connections_in_use_beyond_the_places_are_renewed_too(rotated: Rotated) -> None:
    """What is urgent takes no place; its connection is dropped like any other when the certificate changes."""

    async def use(client: Client) -> None:
        urgent = [asyncio.create_task(client.call("POST", "/urgent", urgent=True)) for _ in range(5)]
        await until(lambda: client.sent == 5)
        rotated.become("second")
        rotated.clock.advance(LOOK_EVERY)
        await client.call("GET", "/meanwhile")
        await asyncio.gather(*urgent)
        await asyncio.gather(*(client.call("GET", "/later") for _ in range(5)))
        assert rotated.seen[-5:] == [SECOND] * 5

    rotated.run(use)
