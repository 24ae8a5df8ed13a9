"""Tokens, certificates and authorities are replaced as a kubelet does it, while reports flow over real gRPC and TLS."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from carico import token_claims
from carico.clock import SystemClock
from carico.settings import ServerTlsFiles, TlsFiles
from carico.types import NodeReport, ReviewedToken
from carico.wire import authorities, client
from carico.wire.authorities import PemPair
from carico.wire.report_client import METHOD, ReportClient
from carico.wire.server import GrpcServer
from carico.wire.tokens import Accounts, Tokens
from harness.kube.made_tokens import unsigned
from harness.wire.messages import node_report
from harness.wire.report_streams import Scheduler, ended, with_files

HEARTBEAT = 5.0  # s
TOKEN_LIFE = 3.0  # s
LIFE = 86400.0  # s


class Volume:
    """A mounted Secret, ConfigMap or token: names are links into `..data`, which is a link that is replaced."""

    def __init__(self, folder: Path, content: Mapping[str, str]) -> None:
        self.folder = folder
        folder.mkdir()
        self.replace(content)
        for name in content:
            (folder / name).symlink_to(f"..data/{name}")

    def replace(self, content: Mapping[str, str]) -> None:
        fresh = self.folder / f"..{secrets.token_hex(4)}"
        fresh.mkdir()
        for name, text in content.items():
            (fresh / name).write_text(text)
        link = self.folder / "..data_tmp"
        link.symlink_to(fresh.name)
        os.replace(link, self.folder / "..data")


class Reviewer:
    """Believes what a token claims, but not longer than it says."""

    async def review(self, token: str, address: str) -> ReviewedToken:  # noqa: ARG002
        found = token_claims.read(token)
        assert found.ends_at > time.time()
        return ReviewedToken(found.subject, found.node, found.ends_at)

    def refuse(self, reason: str) -> None:
        raise AssertionError(reason)


class TimedScheduler(Scheduler):
    def __init__(self, files: ServerTlsFiles) -> None:
        self.received: dict[str, list[float]] = {}  # by node: when its reports came
        super().__init__(files)

    def on_report(self, report: NodeReport) -> None:
        self.received.setdefault(report.node, []).append(time.monotonic())


class World:
    """Three nodes, a scheduler, and the volumes of all."""

    def __init__(self, folder: Path) -> None:
        self._authority = authorities.new_authority(time.time(), LIFE)
        self.bundle = Volume(folder / "ca", {"ca.pem": self._authority.cert})
        self.serving = Volume(folder / "tls", self._pair())
        self.tokens = {f"n{number}": Volume(folder / f"t{number}", {"token": ""}) for number in range(3)}
        files = ServerTlsFiles(
            tls_cert=folder / "tls" / "tls.crt", tls_key=folder / "tls" / "tls.key", token_audience="carico"
        )
        self.scheduler = TimedScheduler(files)
        tokens = Tokens(Accounts.of(files, "carico-system"), Reviewer(), SystemClock())
        self.server = GrpcServer("127.0.0.1:0", files, {METHOD: self.scheduler.service.method}, tokens=tokens)
        self.renew_tokens()

    def renew_tokens(self) -> None:
        for node, volume in self.tokens.items():
            volume.replace({"token": unsigned(node=node, life=TOKEN_LIFE)})

    async def rotate(self, pause: float) -> None:
        """A new authority: it is known first, then it signs, then the old one goes."""
        before, self._authority = self._authority, authorities.new_authority(time.time(), LIFE)
        self.bundle.replace({"ca.pem": before.cert + self._authority.cert})
        await asyncio.sleep(pause)
        self.serving.replace(self._pair())
        await asyncio.sleep(pause)
        self.bundle.replace({"ca.pem": self._authority.cert})
        await asyncio.sleep(pause)

    def _pair(self) -> dict[str, str]:
        made: PemPair = authorities.issue(self._authority, ["localhost"], time.time(), LIFE)
        return {"tls.crt": made.cert, "tls.key": made.key}

    async def report(self, seconds: float) -> None:
        """Agents report changes all the time, each on its own stream."""
        port = await self.server.start()
        agents = {}
        for node, volume in self.tokens.items():
            files = TlsFiles(tls_ca=self.bundle.folder / "ca.pem", token_file=volume.folder / "token")
            agents[node] = ReportClient(with_files(files, f"localhost:{port}"), SystemClock())
        tasks = [asyncio.create_task(agent.run()) for agent in agents.values()]
        tasks.append(asyncio.create_task(self._offer(agents)))
        tasks.append(asyncio.create_task(self._replace()))
        try:
            await asyncio.sleep(seconds)
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                await ended(task)
            await self.server.stop()

    async def _offer(self, agents: Mapping[str, ReportClient]) -> None:
        pods = 0
        while True:
            pods += 1
            for node, agent in agents.items():
                agent.offer(node_report(node=node, pods=pods, at=time.monotonic()))
            await asyncio.sleep(0.1)

    async def _replace(self) -> None:
        while True:
            rotation = asyncio.create_task(self.rotate(TOKEN_LIFE + 0.5))
            while not rotation.done():
                await asyncio.sleep(TOKEN_LIFE / 4)
                self.renew_tokens()
            await rotation


async def longest_gaps(world: World, seconds: float) -> dict[str, float]:
    """By node: the longest time without a report."""
    await world.report(seconds)
    received = world.scheduler.received
    assert received.keys() == world.tokens.keys()
    return {node: max(b - a for a, b in itertools.pairwise(at)) for node, at in received.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [25.0, pytest.param(900.0, marks=[pytest.mark.long, pytest.mark.timeout(1200)])])
def test_no_node_is_stale_while_everything_is_replaced(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens live 3 s, so each stream lives 3 s, and each new connection meets other files."""
    monkeypatch.setattr(client, "SOONEST", 0.5)

    async def play() -> tuple[dict[str, float], World]:
        world = World(tmp_path)
        return await longest_gaps(world, seconds), world

    gaps, world = asyncio.run(play())
    print(f"longest time without a report: {max(gaps.values()):.2f} s")
    assert max(gaps.values()) < HEARTBEAT, gaps
    assert world.scheduler.refused == []
    assert set(world.scheduler.silent) <= set(world.tokens)
    assert len(world.scheduler.silent) <= len(world.tokens), "only at the end"
