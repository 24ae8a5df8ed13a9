"""The schedulers that a scenario may compare. One file each; REGISTRY names them for `schedulers:`.

carico         as shipped
carico-report  in the configuration of the report
kube           kube-scheduler's scoring by requests: least allocated, balanced
trimaran       kube-scheduler with Trimaran's target load packing
koordinator    kube-scheduler with Koordinator's load-aware scheduling
pronto         any node that does not reject at the moment, by Pronto's signal
random         any node that fits by requests
oracle         knows what every pod needs and when it ends

contract.py is what a policy sees of the simulation.
"""

from __future__ import annotations

from carico.sim.policies import carico, koordinator, kube, oracle, pronto, trimaran
from carico.sim.policies.contract import MakePolicy

REGISTRY: dict[str, MakePolicy] = {
    "carico": carico.shipped,
    "carico-report": carico.report,
    "kube": kube.least_allocated,
    "trimaran": trimaran.policy,
    "koordinator": koordinator.policy,
    "pronto": pronto.policy,
    "random": kube.any_node,
    "oracle": oracle.policy,
}
