"""The Lease, on a clock that can be turned: one leader at a time, and not longer than it may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from carico.errors import ApiError
from carico.kube.client import Client
from carico.kube.credentials import fixed
from carico.kube.lease import Election, LeaseTimes, unique_identity
from carico.testing import ManualClock
from harness.kube.network import Asked, PlayedNetwork

TIMES = LeaseTimes(duration=15, renew=10, retry=2)


class Api:
    """One Lease in memory. It may answer with an error, with an invalid body, or not at all."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.error: Exception | None = None
        self.nonsense: bytes | None = None
        self.hangs = False
        self.network = PlayedNetwork(self.answer, kept=True)

    async def answer(self, asked: Asked) -> bytes:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        if self.nonsense is not None:
            return self.nonsense
        if asked.method == "GET":
            if self.lease is None:
                raise ApiError(404, "NotFound", "")
            return json.dumps(self.lease).encode()
        new = asked.body
        had = self.lease["metadata"]["resourceVersion"] if self.lease is not None else ""
        if asked.method == "PUT" and new["metadata"]["resourceVersion"] != had:
            raise ApiError(409, "Conflict", "")
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        self.lease = new
        return json.dumps(new).encode()

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"]["holderIdentity"])


def election(api: Api, clock: ManualClock, identity: str = "me") -> Election:
    return Election(api.network.client(clock=clock), "kube-system", "carico", identity, clock, TIMES)


Scenario = Callable[[Api, ManualClock], Awaitable[None]]


def play(scenario: Scenario) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await scenario(Api(), ManualClock(now=100.0))

    asyncio.run(whole())


async def ever() -> None:
    await asyncio.Event().wait()


async def ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_replicas_of_one_host_name_are_not_the_same_holder() -> None:
    async def scenario(api: Api, clock: ManualClock) -> None:
        names = [unique_identity() for _ in range(3)]
        assert len(set(names)) == 3
        replicas = [election(api, clock, name) for name in names]
        tasks = [asyncio.create_task(replica.run(ever)) for replica in replicas]
        for _ in range(30):
            await clock.turn(2)
            assert sum(replica.leading for replica in replicas) == 1
        for replica in replicas:
            await replica.release()
        await ended(*tasks)

    play(scenario)


@pytest.mark.parametrize("fault", ["hangs", "error", "nonsense"])
def test_a_leader_that_cannot_renew_leads_for_the_time_of_renew_and_no_longer(fault: str) -> None:
    async def scenario(api: Api, clock: ManualClock) -> None:
        leader = election(api, clock)
        await leader.acquire()
        keep = asyncio.create_task(leader.keep())
        await clock.turn(7)
        assert leader.renewed_at == 106  # the last one that succeeds
        broken = {"hangs": True, "error": OSError("no route to host"), "nonsense": b"<html>log in</html>"}
        setattr(api, fault, broken[fault])
        await clock.turn(8.9)
        assert leader.leading
        assert not keep.done()
        await clock.turn(0.2)
        assert not leader.leading
        assert keep.done()
        await keep

    play(scenario)


def test_a_leader_whose_event_loop_stood_still_knows_at_once_that_it_may_lead_no_longer() -> None:
    """Whatever runs first afterwards asks `leading`, before any task of the election has run."""

    async def scenario(api: Api, clock: ManualClock) -> None:
        leader = election(api, clock)
        await leader.acquire()
        keep = asyncio.create_task(leader.keep())
        await clock.turn(1)
        clock.advance(leader.times.renew)
        assert (leader.elected, leader.leading) == (True, False)
        await ended(keep)

    play(scenario)


def test_a_short_fault_costs_nothing() -> None:
    async def scenario(api: Api, clock: ManualClock) -> None:
        leader = election(api, clock)
        await leader.acquire()
        keep = asyncio.create_task(leader.keep())
        api.error = ApiError(500, "InternalError", "")
        await clock.turn(7)
        api.error = None
        await clock.turn(60)
        assert leader.leading
        await ended(keep)

    play(scenario)


def test_one_request_may_take_a_third_of_the_time_to_renew() -> None:
    async def scenario(api: Api, clock: ManualClock) -> None:
        made = election(api, clock)
        assert 0 < made._client._patience <= TIMES.renew / 3

    play(scenario)


def test_the_lease_is_kept_for_what_is_under_way_until_it_is_released() -> None:
    async def scenario(api: Api, clock: ManualClock) -> None:
        leader = election(api, clock)
        leading = asyncio.create_task(leader.run(ever))
        await clock.turn(1)
        assert leader.leading
        await ended(leading)  # a shutdown: nothing new is begun
        await clock.turn(60)
        assert leader.leading
        await leader.release()
        assert (leader.leading, api.holder) == (False, "")
        assert all(connection.closed for connection in api.network.made)
        await asyncio.wait_for(election(api, clock, "next").acquire(), 60)

    play(scenario)


def test_a_leader_whose_lease_was_taken_steps_down_and_takes_nothing_back() -> None:
    async def scenario(api: Api, clock: ManualClock) -> None:
        leader = election(api, clock)
        leading = asyncio.create_task(leader.run(ever))
        await clock.turn(1)
        assert api.lease is not None
        api.lease["spec"]["holderIdentity"] = "another"
        await clock.turn(3)
        assert leading.done()
        assert not leader.leading
        await leader.release()
        assert api.holder == "another"

    play(scenario)


def test_a_lease_with_nulls_and_nothing_else_is_taken() -> None:
    async def scenario(api: Api, clock: ManualClock) -> None:
        empty: dict[str, Any] = {"holderIdentity": None, "leaseDurationSeconds": None, "renewTime": None}
        for spec in (empty, None):
            api.lease = {
                "metadata": {"name": "carico", "namespace": "kube-system", "resourceVersion": "7"},
                "spec": spec,
            }
            await asyncio.wait_for(election(api, clock).acquire(), 60)
            assert api.holder == "me"

    play(scenario)


def test_others_wait_at_least_the_lease_duration() -> None:
    async def scenario(api: Api, clock: ManualClock) -> None:
        times = LeaseTimes(duration=1.4, renew=1.2, retry=0.2)
        await Election(api.network.client(), "n", "l", "me", clock, times).acquire()
        assert api.lease is not None
        assert api.lease["spec"]["leaseDurationSeconds"] >= times.duration

    play(scenario)


def test_one_of_several_api_servers_loses_its_power_and_the_leader_goes_on() -> None:
    """Idle connections to it look alive. A new one works at once."""

    async def scenario(_: Api, clock: ManualClock) -> None:
        lease: dict[str, Any] = {"metadata": {"name": "l", "namespace": "n", "resourceVersion": "1"}, "spec": {}}
        dead: set[asyncio.StreamWriter] = set()
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            try:
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                    body = await reader.readexactly(length)
                    if writer in dead:
                        await reader.read()
                        return
                    if head.startswith(b"PUT"):
                        version = int(lease["metadata"]["resourceVersion"]) + 1
                        lease["spec"], lease["metadata"]["resourceVersion"] = json.loads(body)["spec"], str(version)
                    answer = json.dumps(lease).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
                    await writer.drain()
            except asyncio.IncompleteReadError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = Client(fixed(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        leader = Election(client, "n", "l", "me", clock, TIMES)
        await leader.acquire()
        keep = asyncio.create_task(leader.keep())
        dead.update(writers)
        leader._client._patience = 0.2  # instead of 3 s, to keep the test short
        before = leader.renewed_at
        await clock.turn(TIMES.retry)
        while leader.renewed_at == before:  # noqa: ASYNC110 - the other end of a socket has no event
            await asyncio.sleep(0.01)
        assert leader.leading
        assert clock.monotonic() < before + TIMES.renew
        await ended(keep)
        await leader.release()
        await client.close()
        server.close()
        while not all(writer.transport.is_closing() for writer in writers):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await server.wait_closed()

    play(scenario)
