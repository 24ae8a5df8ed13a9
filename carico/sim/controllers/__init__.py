"""What creates pods of a workload, and replaces them. One file each; REGISTRY names them for `controller:`.

job          a number of pods that end; failed ones are created again
deployment   a number of pods that stay; `scale` changes it, `autoscale` follows the cpu usage
arrivals     pods that arrive at random, each on its own
autoscaler   changes the replicas of a deployment by its cpu usage
contract     what a controller sees of the simulation, and what the simulation calls
"""

from __future__ import annotations

from carico.sim.controllers.arrivals import Arrivals
from carico.sim.controllers.contract import Controller, MakeController
from carico.sim.controllers.deployment import Deployment
from carico.sim.controllers.job import Job

REGISTRY: dict[str, MakeController] = {"job": Job, "deployment": Deployment, "arrivals": Arrivals}

__all__ = ["REGISTRY", "Controller", "MakeController"]
