"""PrioritySort plugin: higher priority first; among equals, the pod that was queued first."""

from __future__ import annotations

from typing import Any

from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import QueueSort


class PrioritySort(QueueSort):
    name = "PrioritySort"
    interests: tuple[EventInterest, ...] = ()

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        return (-pod.priority, queued_at)
