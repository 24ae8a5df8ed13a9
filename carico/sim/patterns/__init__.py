"""Generators of a pod's phases, for `pattern:` of a scenario. One file each; REGISTRY names them.

pi         cpu work and nothing else
sklearn    loads data, then trains with one thread
server     idle with short bursts of cpu
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from carico.sim.patterns import pi, server, sklearn
from carico.sim.workload import WorkPhase

Pattern = Callable[[np.random.Generator], tuple[WorkPhase, ...]]

REGISTRY: dict[str, Pattern] = {"pi": pi.phases, "sklearn": sklearn.phases, "server": server.phases}
