"""Events: how many of those recorded are written, and what happens when they cannot be."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from carico.kube import events, pod_writes
from carico.kube.events import FINISH, LOOK_EVERY, REFRESH, Event, EventRecorder
from carico.kube.objects import Pod
from carico.kube.writes import Urgency
from carico.testing import make_pod
from harness.kube.scripted import Desk, Sent, bad, good, one_after_the_other


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def failed(pod: Pod, note: str = "no node") -> Event:
    return Event(pod, "Warning", "FailedScheduling", "Scheduling", note)


def scheduled(pod: Pod) -> Event:
    return Event(pod, "Normal", "Scheduled", "Binding", f"Successfully assigned {pod.key} to n")


class World(Desk):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.recorder = EventRecorder(self.client, self.writer, "carico-scheduler", "test", self.clock)

    @property
    def sent(self) -> list[Sent]:
        return list(self.api.sent)

    async def settle(self) -> None:
        await self.until(lambda: not len(self.writer))


def test_a_pod_that_fails_again_and_again_is_written_a_few_times() -> None:
    async def scenario() -> None:
        world = World()
        pod = make_pod("p")
        async with world.at_work(world.recorder.run()):
            for i in range(36):  # every ten seconds for six minutes
                world.recorder.put(failed(pod))
                await world.clock.turn(10)
                assert len(world.sent) == (1 if i == 0 else 2 if i * 10 < REFRESH + 10 else 3)
            post, second, third = world.sent
            assert (post.method, second.method, third.method) == ("POST", "PATCH", "PATCH")
            assert "series" not in post.body
            assert [sent.body["series"]["count"] for sent in (second, third)] == [2, 32]
            assert second.path == third.path == f"{post.path}/{post.body['metadata']['name']}"
            await world.clock.turn(FINISH + LOOK_EVERY)
            assert [sent.body["series"]["count"] for sent in world.sent[3:]] == [36], "the last word"
            world.recorder.put(failed(pod))
            await world.settle()
            assert world.sent[-1].method == "POST", "it is news again"

    run(scenario)


def test_another_note_does_not_make_another_event_until_the_series_is_due() -> None:
    async def scenario() -> None:
        world = World()
        pod = make_pod("p")
        async with world.at_work(world.recorder.run()):
            for i in range(40):
                world.recorder.put(failed(pod, f"0/{i} nodes"))
                await world.clock.turn(10)
            first, second, third = world.sent
            assert [first.body["note"], second.body["series"]["count"]] == ["0/0 nodes", 2]
            assert (third.method, third.body["note"]) == ("POST", "0/31 nodes")
            assert third.body["metadata"]["name"] != first.body["metadata"]["name"]

    run(scenario)


def test_an_event_that_recurs_before_it_was_sent_is_sent_once() -> None:
    async def scenario() -> None:
        world = World()
        pod = make_pod("p")
        for i in range(5):
            world.recorder.put(failed(pod, f"note {i}"))
        async with world.at_work():
            await world.settle()
            [sent] = world.sent
            assert (sent.method, sent.body["note"], sent.body["series"]["count"]) == ("POST", "note 4", 5)

    run(scenario)


def test_an_event_that_recurs_while_it_is_in_flight_is_sent_after_it() -> None:
    async def scenario() -> None:
        world = World()
        go_on = asyncio.Event()

        async def wait(_: Sent) -> bytes:
            await go_on.wait()
            return b""

        world.api.answer = wait
        pod = make_pod("p")
        async with world.at_work():
            world.recorder.put(failed(pod))
            await world.until(lambda: world.api.in_flight == 1)
            for _ in range(3):
                world.recorder.put(failed(pod))
            go_on.set()
            await world.settle()
            assert [sent.method for sent in world.sent] == ["POST", "PATCH"]
            assert world.sent[-1].body["series"]["count"] == 4
            assert world.api.most_in_flight == 1

    run(scenario)


def test_ten_thousand_waiting_pods_that_every_deletion_wakes() -> None:
    async def scenario() -> None:
        world = World(event_workers=400)
        pods = [make_pod(f"p{i}") for i in range(10_000)]
        async with world.at_work(world.recorder.run()):
            for wave in range(6):
                for pod in pods:
                    world.recorder.put(failed(pod, f"0/{wave} nodes"))
                await world.settle()
                await world.clock.turn(10)
            assert Counter(sent.method for sent in world.sent) == {"POST": 10_000, "PATCH": 10_000}
            assert world.recorder.lost == 0
            await world.clock.turn(FINISH + LOOK_EVERY)
            await world.settle()
            assert len(world.sent) == 30_000, "their last counts"
            assert not world.recorder._series

    run(scenario)


def test_a_store_of_events_that_is_down_for_ten_minutes() -> None:
    """Nothing waits for it; Events of pods bound meanwhile are written afterwards, and dropped ones are counted."""

    async def scenario() -> None:
        world = World(event_workers=50, most={Urgency.EVENT: 1000, Urgency.SCHEDULED_EVENT: 4500})
        down = True

        async def answer(sent: Sent) -> bytes:
            return await (bad(503) if down and "/events" in sent.path else good)(sent)

        world.api.answer = answer
        bound, waiting = [make_pod(f"b{i}") for i in range(5000)], [make_pod(f"w{i}") for i in range(3000)]
        async with world.at_work(world.recorder.run()):
            for i, pod in enumerate(bound):
                world.recorder.put(scheduled(pod))
                if i < len(waiting):
                    world.recorder.put(failed(waiting[i]))
                    write = pod_writes.condition(world.client, waiting[i], "Unschedulable", "no node", world.clock)
                    world.writer.put(write)
                    world.writer.put(pod_writes.eviction(world.client, waiting[i], "carico", world.clock))
                if i % 10 == 0:
                    await world.clock.turn(1.2)
            counts = world.writer.counts()
            assert counts[Urgency.CONDITION] == counts[Urgency.EVICTION] == 0, "they do not wait for Events"
            assert world.api.count("DELETE") == 3000
            assert len(world.recorder) <= 1000 + 4500 + 50
            assert world.recorder.lost >= 3000 - 1050 + 5000 - 4550
            assert world.api.count("POST") < 50 + 600, "requests are spaced out"
            before, down = len(world.sent), False
            await world.until(lambda: not len(world.writer), within=60.0)
            told = Counter(sent.body["reason"] for sent in world.sent[before:])
            assert 4500 <= told["Scheduled"] <= 4550
            assert 1000 <= told["FailedScheduling"] <= 1050
            assert world.recorder.sent + world.recorder.lost == 8000

    run(scenario)


def test_a_store_of_events_that_hangs_takes_only_its_own_requests() -> None:
    async def scenario() -> None:
        world = World(event_workers=20)

        async def answer(sent: Sent) -> bytes:
            if "/events" in sent.path:
                await world.clock.sleep(30)
                raise TimeoutError
            return b""

        world.api.answer = answer
        async with world.at_work():
            for i in range(200):
                world.recorder.put(scheduled(make_pod(f"p{i}")))
            await world.until(lambda: world.api.in_flight == 20)
            world.writer.put(pod_writes.condition(world.client, make_pod("p"), "Unschedulable", "", world.clock))
            await world.until(lambda: not world.writer.counts()[Urgency.CONDITION])
            await world.clock.turn(31)
            assert world.api.in_flight <= 1, "one after the other is asked while none answers"

    run(scenario)


def test_an_event_keeps_its_name_until_it_has_arrived() -> None:
    async def scenario() -> None:
        world = World()
        world.api.answer = one_after_the_other(bad(500), bad(429), bad(409))
        async with world.at_work():
            world.recorder.put(scheduled(make_pod("p")))
            await world.clock.turn(5)
            assert (len(world.sent), len({sent.body["metadata"]["name"] for sent in world.sent})) == (3, 1)
            assert (world.recorder.sent, world.recorder.lost) == (1, 0), "an earlier try arrived after all"

    run(scenario)


def test_a_series_whose_event_has_expired_begins_again() -> None:
    async def scenario() -> None:
        world = World()

        async def answer(sent: Sent) -> bytes:
            return await (bad(404) if sent.method == "PATCH" else good)(sent)

        world.api.answer = answer
        async with world.at_work():
            for _ in range(2):
                world.recorder.put(failed(make_pod("p")))
                await world.settle()
            assert [sent.method for sent in world.sent] == ["POST", "PATCH", "POST"]
            assert world.sent[-1].body["series"]["count"] == 2

    run(scenario)


@pytest.mark.parametrize("status", [400, 403, 404, 405, 413, 422])
def test_an_event_that_is_refused_for_good_is_counted(status: int) -> None:
    async def scenario() -> None:
        world = World()
        world.api.answer = bad(status)
        async with world.at_work():
            for _ in range(30):
                world.recorder.put(failed(make_pod("p")))
                await world.clock.turn(5)
            assert len(world.sent) == 2, "it is not tried at every failure"
            assert world.recorder.lost == 2

    run(scenario)


def test_series_that_are_remembered_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(events, "SERIES", 10)
        world = World()
        async with world.at_work():
            for i in range(100):
                world.recorder.put(failed(make_pod(f"p{i}")))
                world.recorder.put(scheduled(make_pod(f"p{i}")))
            await world.settle()
            assert len(world.recorder._series) == 10
            assert len(world.sent) == 200

    run(scenario)


def test_a_note_is_cut_where_the_api_server_would_refuse_it() -> None:
    async def scenario() -> None:
        world = World()
        async with world.at_work():
            world.recorder.put(failed(make_pod("p"), "…" * 1000))
            await world.settle()
            assert world.sent[0].body["note"] == "…" * 341

    run(scenario)
