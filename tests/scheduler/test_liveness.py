"""When a scheduler fails its liveness probe, so that it is restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import thread_time

import pytest
from prometheus_client import generate_latest

from carico.http.message import Page, Request
from carico.scheduler.http import routes
from carico.scheduler.process import LONG_TURN, PAUSE, RENEWAL_LIMIT, STALL_LIMIT, Scheduler
from carico.scheduler.queue.entries import Queued
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_pod
from harness.scheduler.binding_world import BindingWorld

KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    clock = ManualClock()
    return Scheduler(
        SchedulerSettings(kubeconfig=file, listen="127.0.0.1:0", debug_listen="127.0.0.1:0", plaintext=True), clock
    )


def turn(scheduler: Scheduler, seconds: float) -> None:
    assert isinstance(scheduler.clock, ManualClock)
    scheduler.clock.advance(seconds)


def test_an_event_loop_that_does_not_turn(scheduler: Scheduler) -> None:
    turn(scheduler, STALL_LIMIT)
    assert scheduler.why_not_alive() is None
    turn(scheduler, 1)
    assert scheduler.why_not_alive() == "the event loop has not run for 11 s"


def test_a_leader_that_does_not_renew(scheduler: Scheduler) -> None:
    scheduler.election.elected, scheduler.election.renewed_at = True, scheduler.clock.monotonic()
    assert scheduler.may_bind()
    turn(scheduler, 10)
    assert not scheduler.may_bind()  # long before anybody calls it dead
    turn(scheduler, RENEWAL_LIMIT - 10 + 1)
    scheduler._turned_at = scheduler.clock.monotonic()
    assert scheduler.why_not_alive() == "this leader has not renewed its lease for 21 s"
    scheduler.election.elected = False
    assert scheduler.why_not_alive() is None


def test_the_metrics_tell_whether_the_lease_is_held_as_kubernetes_components_do(scheduler: Scheduler) -> None:
    name, labels = "leader_election_master_status", {"name": "carico-scheduler"}
    assert scheduler.parts.registry.get_sample_value(name, labels) == 0
    scheduler.election.elected = True
    assert scheduler.parts.registry.get_sample_value(name, labels) == 1


def test_it_is_not_ready_before_the_first_lists(scheduler: Scheduler) -> None:
    assert scheduler.why_not_ready() == "the initial lists of the API server's objects are not complete"
    for reflector in scheduler.watches.all:
        reflector.synced.set()
    assert scheduler.why_not_ready() is None


def lines(scheduler: Scheduler) -> dict[str, str]:
    page = routes.open_routes(scheduler)["/readyz"].answer(Request("GET", {"verbose": ""}, b""))
    assert isinstance(page, Page)
    *watches, _ = page.body.decode().splitlines()
    return {line[len("[+]watch ") :]: line[:3] for line in watches}


def test_a_watch_without_progress_is_shown_and_the_scheduler_stays_ready(scheduler: Scheduler) -> None:
    assert lines(scheduler)["pods failed: no list is complete yet"] == "[-]"
    for reflector in scheduler.reflectors:
        reflector.synced.set()
    turn(scheduler, 70)
    scheduler.watches.nodes._progress()  # a bookmark
    turn(scheduler, 80)  # a quiet watch is not a stuck one
    found = lines(scheduler)
    assert set(found.values()) == {"[+]"}
    assert "nodes ok: 80 s since its last event or bookmark" in found
    assert "failed pods ok: 150 s since its last event or bookmark" in found
    assert len(found) == len(scheduler.reflectors)
    turn(scheduler, 1)
    found = lines(scheduler)
    assert found["pods stuck: no event and no bookmark for 151 s"] == "[-]"
    assert found["nodes ok: 81 s since its last event or bookmark"] == "[+]"
    assert scheduler.why_not_ready() is None


def test_the_metrics_tell_when_each_watch_last_made_progress(scheduler: Scheduler) -> None:
    turn(scheduler, 40)
    registry = scheduler.parts.registry
    text = generate_latest(registry).decode()
    for kind in ("Pod", "Node", "PersistentVolumeClaim", "FailedPod"):
        progress = registry.get_sample_value("carico_scheduler_watch_progress_timestamp_seconds", {"kind": kind})
        assert progress is not None
        assert scheduler.clock.wall() - progress == 40.0
        assert f'carico_undecodable_objects_total{{kind="{kind}"}} 0.0' in text
        assert f'carico_scheduler_handler_errors_total{{kind="{kind}"}} 0.0' in text


def test_a_long_cycle_is_followed_by_a_pause_for_everything_else() -> None:
    """One iteration of the event loop between two long searches for victims is too little to renew the Lease."""

    async def scenario() -> None:
        world = BindingWorld({"a": 5.0}, heartbeat=100.0)
        for name in ("p", "q", "r"):
            world.see(make_pod(name))
        attempts: list[str] = []

        def long(queued: Queued) -> None:
            attempts.append(queued.info.pod.name)
            world.queue.done(queued.uid, world.clock.monotonic())
            end = thread_time() + 1.2 * LONG_TURN
            while thread_time() < end:
                pass

        world.scheduler._attempt = long  # type: ignore[method-assign]
        task = asyncio.create_task(world.scheduler._schedule())
        for tried in (1, 2, 3):
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(attempts) == tried
            await world.clock.turn(PAUSE)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
