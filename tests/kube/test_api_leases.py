"""Leases, and the bindings of a leader that fell, against both API servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from carico.kube import credentials, pods
from carico.kube.binding import Binding, BindResult
from carico.kube.client import Client
from carico.kube.lease import Election, LeaseTimes
from harness.kube.place import CLOCK, PATIENCE, Place, Scenario


def test_one_leader_at_a_time_and_a_quick_hand_over(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        # Longer than anybody waits here: only the hand-over can bring the second one in.
        times = LeaseTimes(duration=10 * PATIENCE, renew=9 * PATIENCE, retry=0.2)
        first, second = (
            Election(place.client, place.namespace, "carico", name, CLOCK, times) for name in ("first", "second")
        )
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await place.until(lambda: second.holder == "first")
        await asyncio.sleep(1)  # some more tries
        assert not waiting.done()
        await first.release()
        await asyncio.wait_for(waiting, PATIENCE)
        assert second.leading
        assert not first.leading
        await second.release()

    play(scenario)


def test_a_binding_whose_leader_fell_while_it_waited_for_its_turn_is_not_sent(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        pod, leads = await place.pod("late"), [True]
        client = Client(credentials.from_kubeconfig(place.proxy.kubeconfig), qps=2, burst=1)
        try:
            await client.call("GET", "/version")  # the next one has its turn in half a second
            bound = asyncio.create_task(Binding(client, pod, "kwok-0001", CLOCK, lambda: leads[0]).send())
            await asyncio.sleep(0)
            leads[0] = False
            assert (await bound).bound is BindResult.FAILED
            assert not (await pods.read(place.client, place.namespace, "late")).spec.node_name
        finally:
            await client.close()

    play(scenario)


def test_a_binding_whose_leader_fell_while_it_waited_for_a_connection_is_not_sent(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(place: Place) -> None:
        pod, leads, pods = await place.pod("late"), [True], f"/api/v1/namespaces/{place.namespace}/pods"
        client = Client(credentials.from_kubeconfig(place.proxy.kubeconfig), connections=1)
        try:
            holds = asyncio.create_task(client.call("GET", f"{pods}?watch=1&timeoutSeconds=300&limit=7"))
            await place.until(lambda: any("limit=7" in path for _, path in place.proxy.seen))
            bound = asyncio.create_task(Binding(client, pod, "kwok-0001", CLOCK, lambda: leads[0]).send())
            await asyncio.sleep(0)
            leads[0] = False
            holds.cancel()
            assert (await bound).bound is BindResult.FAILED
            assert not [path for _, path in place.proxy.seen if path.endswith("/binding")]
        finally:
            await client.close()

    play(scenario)


def test_a_lease_does_not_wait_for_the_rate_limit(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        client = Client(credentials.from_kubeconfig(place.proxy.kubeconfig), qps=0.001, burst=1)
        try:
            await client.call("GET", "/version")  # the next one would have its turn in a quarter of an hour
            election = Election(client, place.namespace, "carico", "only", CLOCK)
            await asyncio.wait_for(election.acquire(), PATIENCE)
            assert election.leading
            await election.release()
        finally:
            await client.close()

    play(scenario)


def test_a_dead_leader_is_followed_after_its_time_and_one_that_is_cut_off_steps_down_before(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(place: Place) -> None:
        times = LeaseTimes(duration=6, renew=1.5, retry=0.2)
        first, second = (
            Election(place.client, place.namespace, "carico", name, CLOCK, times) for name in ("first", "second")
        )
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        waiting = asyncio.create_task(second.acquire())
        await place.until(lambda: second.holder == "first")
        place.proxy.fault = lambda _method, path: 500 if "/leases" in path else None
        await asyncio.wait_for(keeping, PATIENCE)
        assert not first.leading
        assert not waiting.done()
        place.proxy.fault = lambda _method, _path: None
        await asyncio.wait_for(waiting, PATIENCE)
        assert second.leading
        await first.release()
        await second.release()

    play(scenario)
