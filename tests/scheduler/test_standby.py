"""A replica that follows and never schedules keeps nothing of pods that are gone."""

from __future__ import annotations

from harness.scheduler.standby import RUNNING, WAITING, WARM_UP, Standby, tracked_objects

PODS = 1500


def test_pods_that_come_and_go_leave_nothing_behind() -> None:
    standby = Standby()
    standby.pass_by(WARM_UP)
    before = tracked_objects()
    standby.pass_by(PODS)
    grown = tracked_objects() - before
    # What one pod leaves behind is several objects; what caches still take in is far fewer than one per pod.
    assert grown < PODS / 3
    assert len(standby.parts.queue) == WAITING
    assert len(standby.parts.snapshot.pods) == RUNNING
