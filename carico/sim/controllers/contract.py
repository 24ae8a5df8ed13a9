"""What a controller sees of the simulation, and what the simulation calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from carico.sim.scenario import ScenarioWorkload
from carico.sim.timeline import Timeline


class ClusterForControllers(Protocol):
    timeline: Timeline

    def create(self, workload: ScenarioWorkload, on_end: Callable[[str, str], None]) -> str:
        """Creates a pod of the workload and returns its UID; `on_end` gets the UID and how the pod ended."""

    def delete(self, uid: str) -> None: ...

    def cpu_usage(self, uid: str) -> float | None:
        """Cores that the pod uses now; None while its container does not run."""


class Controller(Protocol):
    def start(self) -> None:
        """Called once, when the workload begins."""

    @property
    def done(self) -> bool:
        """Nothing more will happen: all its pods have ended, or it never ends by itself."""


MakeController = Callable[[ClusterForControllers, ScenarioWorkload, np.random.Generator], Controller]
