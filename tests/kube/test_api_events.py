"""Events against both API servers, through a proxy that breaks things on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from carico.kube.events import Event, EventRecorder
from carico.kube.writer import ApiWriter
from carico.kube.writes import always
from harness.kube.faulty import CUT, LOSE
from harness.kube.place import CLOCK, PATIENCE, Place, Scenario


async def _events(place: Place) -> list[dict[str, Any]]:
    listed = await place.client.call("GET", f"/apis/events.k8s.io/v1/namespaces/{place.namespace}/events")
    return list(msgspec.json.decode(listed)["items"])


@asynccontextmanager
async def _recording(place: Place) -> AsyncIterator[tuple[EventRecorder, ApiWriter]]:
    writer = ApiWriter(place.client, CLOCK, always)
    task = asyncio.create_task(writer.run())
    try:
        yield EventRecorder(place.client, writer, "carico-scheduler", "test", CLOCK), writer
        async with asyncio.timeout(PATIENCE):
            await writer.drain()
    finally:
        task.cancel()


def test_no_event_is_lost_whatever_the_api_server_does(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        pods = [await place.pod(f"p{i}") for i in range(10)]
        count = 0

        def fault(method: str, path: str) -> int | None:
            nonlocal count
            if method != "POST" or not path.endswith("/events"):
                return None
            count += 1
            return {1: 500, 2: 429, 3: LOSE, 4: CUT}.get(count)

        place.proxy.fault = fault
        async with _recording(place) as (recorder, _):
            for pod in pods:
                recorder.put(Event(pod, "Normal", "Scheduled", "Binding", f"assigned {pod.name}"))
        notes = sorted(event["note"] for event in await _events(place))
        assert notes == sorted(f"assigned {pod.name}" for pod in pods)
        assert (recorder.sent, recorder.lost) == (10, 0)

    play(scenario)


def test_repetitions_become_a_series(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        early, late = await place.pod("early"), await place.pod("late")
        async with _recording(place) as (recorder, writer):
            for i in range(3):
                for pod in (early, late):
                    recorder.put(Event(pod, "Warning", "FailedScheduling", "Scheduling", f"no node {i}"))
                if i == 1:
                    async with asyncio.timeout(PATIENCE):
                        await writer.drain()
        assert (recorder.sent, recorder.lost) == (2, 0)
        for event in await _events(place):
            assert (event["series"]["count"], event["note"]) == (2, "no node 1"), "the third time is written later"

        place.client._binary = False  # the same in JSON
        async with _recording(place) as (recorder, writer):
            for i in range(2):
                recorder.put(Event(early, "Warning", "Other", "Scheduling", f"no node {i}"))
                async with asyncio.timeout(PATIENCE):
                    await writer.drain()
        [event] = [event for event in await _events(place) if event["reason"] == "Other"]
        assert (event["series"]["count"], event["note"]) == (2, "no node 0"), "a note cannot be changed"
        assert event["regarding"]["uid"] == early.uid

    play(scenario)
