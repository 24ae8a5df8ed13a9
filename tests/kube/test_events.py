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


class Office(Desk):
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
        office = Office()
        pod = make_pod("p")
        async with office.at_work(office.recorder.run()):
            for i in range(36):  # every ten seconds for six minutes
                office.recorder.put(failed(pod))
                await office.clock.turn(10)
                assert len(office.sent) == (1 if i == 0 else 2 if i * 10 < REFRESH + 10 else 3)
            post, second, third = office.sent
            assert (post.method, second.method, third.method) == ("POST", "PATCH", "PATCH")
            assert "series" not in post.body
            assert [sent.body["series"]["count"] for sent in (second, third)] == [2, 32]
            assert second.path == third.path == f"{post.path}/{post.body['metadata']['name']}"
            await office.clock.turn(FINISH + LOOK_EVERY)
            assert [sent.body["series"]["count"] for sent in office.sent[3:]] == [36], "the last word"
            office.recorder.put(failed(pod))
            await office.settle()
            assert office.sent[-1].method == "POST", "it is news again"

    run(scenario)


def test_another_note_does_not_make_another_event_until_the_series_is_due() -> None:
    async def scenario() -> None:
        office = Office()
        pod = make_pod("p")
        async with office.at_work(office.recorder.run()):
            for i in range(40):
                office.recorder.put(failed(pod, f"0/{i} nodes"))
                await office.clock.turn(10)
            first, second, third = office.sent
            assert [first.body["note"], second.body["series"]["count"]] == ["0/0 nodes", 2]
            assert (third.method, third.body["note"]) == ("POST", "0/31 nodes")
            assert third.body["metadata"]["name"] != first.body["metadata"]["name"]

    run(scenario)


def test_an_event_that_recurs_before_it_was_sent_is_sent_once() -> None:
    async def scenario() -> None:
        office = Office()
        pod = make_pod("p")
        for i in range(5):
            office.recorder.put(failed(pod, f"note {i}"))
        async with office.at_work():
            await office.settle()
            [sent] = office.sent
            assert (sent.method, sent.body["note"], sent.body["series"]["count"]) == ("POST", "note 4", 5)

    run(scenario)


def test_an_event_that_recurs_while_it_is_in_flight_is_sent_after_it() -> None:
    async def scenario() -> None:
        office = Office()
        go_on = asyncio.Event()

        async def wait(_: Sent) -> bytes:
            await go_on.wait()
            return b""

        office.api.answer = wait
        pod = make_pod("p")
        async with office.at_work():
            office.recorder.put(failed(pod))
            await office.until(lambda: office.api.in_flight == 1)
            for _ in range(3):
                office.recorder.put(failed(pod))
            go_on.set()
            await office.settle()
            assert [sent.method for sent in office.sent] == ["POST", "PATCH"]
            assert office.sent[-1].body["series"]["count"] == 4
            assert office.api.most_in_flight == 1

    run(scenario)


def test_ten_thousand_waiting_pods_that_every_deletion_wakes() -> None:
    async def scenario() -> None:
        office = Office(event_workers=400)
        pods = [make_pod(f"p{i}") for i in range(10_000)]
        async with office.at_work(office.recorder.run()):
            for wave in range(6):
                for pod in pods:
                    office.recorder.put(failed(pod, f"0/{wave} nodes"))
                await office.settle()
                await office.clock.turn(10)
            assert Counter(sent.method for sent in office.sent) == {"POST": 10_000, "PATCH": 10_000}
            assert office.recorder.lost == 0
            await office.clock.turn(FINISH + LOOK_EVERY)
            await office.settle()
            assert len(office.sent) == 30_000, "their last counts"
            assert not office.recorder._series

    run(scenario)


def test_a_store_of_events_that_is_down_for_ten_minutes() -> None:
    """Nothing waits for it; Events of pods bound meanwhile are written afterwards, and dropped ones are counted."""

    async def scenario() -> None:
        office = Office(event_workers=50, most={Urgency.EVENT: 1000, Urgency.SCHEDULED_EVENT: 4500})
        down = True

        async def answer(sent: Sent) -> bytes:
            return await (bad(503) if down and "/events" in sent.path else good)(sent)

        office.api.answer = answer
        bound, waiting = [make_pod(f"b{i}") for i in range(5000)], [make_pod(f"w{i}") for i in range(3000)]
        async with office.at_work(office.recorder.run()):
            for i, pod in enumerate(bound):
                office.recorder.put(scheduled(pod))
                if i < len(waiting):
                    office.recorder.put(failed(waiting[i]))
                    write = pod_writes.condition(office.client, waiting[i], "Unschedulable", "no node", office.clock)
                    office.writer.put(write)
                    office.writer.put(pod_writes.eviction(office.client, waiting[i], "carico", office.clock))
                if i % 10 == 0:
                    await office.clock.turn(1.2)
            counts = office.writer.counts()
            assert counts[Urgency.CONDITION] == counts[Urgency.EVICTION] == 0, "they do not wait for Events"
            assert office.api.count("DELETE") == 3000
            assert len(office.recorder) <= 1000 + 4500 + 50
            assert office.recorder.lost >= 3000 - 1050 + 5000 - 4550
            assert office.api.count("POST") < 50 + 600, "requests are spaced out"
            before, down = len(office.sent), False
            await office.until(lambda: not len(office.writer), within=60.0)
            told = Counter(sent.body["reason"] for sent in office.sent[before:])
            assert 4500 <= told["Scheduled"] <= 4550
            assert 1000 <= told["FailedScheduling"] <= 1050
            assert office.recorder.sent + office.recorder.lost == 8000

    run(scenario)


def test_a_store_of_events_that_hangs_takes_only_its_own_requests() -> None:
    async def scenario() -> None:
        office = Office(event_workers=20)

        async def answer(sent: Sent) -> bytes:
            if "/events" in sent.path:
                await office.clock.sleep(30)
                raise TimeoutError
            return b""

        office.api.answer = answer
        async with office.at_work():
            for i in range(200):
                office.recorder.put(scheduled(make_pod(f"p{i}")))
            await office.until(lambda: office.api.in_flight == 20)
            office.writer.put(pod_writes.condition(office.client, make_pod("p"), "Unschedulable", "", office.clock))
            await office.until(lambda: not office.writer.counts()[Urgency.CONDITION])
            await office.clock.turn(31)
            assert office.api.in_flight <= 1, "one after the other is asked while none answers"

    run(scenario)


def test_an_event_keeps_its_name_until_it_has_arrived() -> None:
    async def scenario() -> None:
        office = Office()
        office.api.answer = one_after_the_other(bad(500), bad(429), bad(409))
        async with office.at_work():
            office.recorder.put(scheduled(make_pod("p")))
            await office.clock.turn(5)
            assert (len(office.sent), len({sent.body["metadata"]["name"] for sent in office.sent})) == (3, 1)
            assert (office.recorder.sent, office.recorder.lost) == (1, 0), "an earlier try arrived after all"

    run(scenario)


def test_a_series_whose_event_has_expired_begins_again() -> None:
    async def scenario() -> None:
        office = Office()

        async def answer(sent: Sent) -> bytes:
            return await (bad(404) if sent.method == "PATCH" else good)(sent)

        office.api.answer = answer
        async with office.at_work():
            for _ in range(2):
                office.recorder.put(failed(make_pod("p")))
                await office.settle()
            assert [sent.method for sent in office.sent] == ["POST", "PATCH", "POST"]
            assert office.sent[-1].body["series"]["count"] == 2

    run(scenario)


@pytest.mark.parametrize("status", [400, 403, 404, 405, 413, 422])
def test_an_event_that_is_refused_for_good_is_counted(status: int) -> None:
    async def scenario() -> None:
        office = Office()
        office.api.answer = bad(status)
        async with office.at_work():
            for _ in range(30):
                office.recorder.put(failed(make_pod("p")))
                await office.clock.turn(5)
            assert len(office.sent) == 2, "it is not tried at every failure"
            assert office.recorder.lost == 2

    run(scenario)


def test_series_that_are_remembered_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(events, "SERIES", 10)
        office = Office()
        async with office.at_work():
            for i in range(100):
                office.recorder.put(failed(make_pod(f"p{i}")))
                office.recorder.put(scheduled(make_pod(f"p{i}")))
            await office.settle()
            assert len(office.recorder._series) == 10
            assert len(office.sent) == 200

    run(scenario)


def test_a_note_is_cut_where_the_api_server_would_refuse_it() -> None:
    async def scenario() -> None:
        office = Office()
        async with office.at_work():
            office.recorder.put(failed(make_pod("p"), "…" * 1000))
            await office.settle()
            assert office.sent[0].body["note"] == "…" * 341

    run(scenario)
