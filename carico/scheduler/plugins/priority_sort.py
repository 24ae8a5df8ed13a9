"""Higher priority first; among equals, who came first."""

from __future__ import annotations

from typing import Any

from carico.scheduler.changes import Interest
from carico.scheduler.template import PodInfo


class PrioritySort:
    name = "PrioritySort"
    interests: tuple[Interest, ...] = ()

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        return (-pod.priority, queued_at)
