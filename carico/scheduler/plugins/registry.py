"""The plugins by name: those of this package, and those that other packages register.

Another package registers a factory in its own `pyproject.toml`:

    [project.entry-points."carico.scheduler.plugins"]
    MyPlugin = "my_package.my_module:make"

`make(tools)` returns the plugin; it is called once per profile that names it. A plugin that has settings registers a
`FactoryWithArgs` instead, whose `make(tools, args)` gets them validated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from carico.clock import Clock
from carico.config import nearest
from carico.errors import UsageError
from carico.kube.volumes import ApiCaller
from carico.scheduler.cache.class_costs import ClassCostTable
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.framework.contract import MeasuredSupply, Plugin
from carico.scheduler.framework.in_flight import WaitingPods
from carico.scheduler.framework.registrations import Registrations
from carico.scheduler.plugins.capacity import Capacity, CapacityArgs
from carico.scheduler.plugins.default_preemption import DefaultPreemption
from carico.scheduler.plugins.image_locality import ImageLocality
from carico.scheduler.plugins.node_affinity import NodeAffinity
from carico.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from carico.scheduler.plugins.node_name import NodeName
from carico.scheduler.plugins.node_ports import NodePorts
from carico.scheduler.plugins.node_resources_fit import NodeResourcesFit
from carico.scheduler.plugins.priority_sort import PrioritySort
from carico.scheduler.plugins.scheduling_gates import SchedulingGates
from carico.scheduler.plugins.taints import NodeUnschedulable, TaintToleration
from carico.scheduler.plugins.topology.inter_pod_affinity import InterPodAffinity
from carico.scheduler.plugins.topology.pod_topology_spread import PodTopologySpread
from carico.scheduler.plugins.unsupported import Unsupported
from carico.scheduler.plugins.volume.node_volume_limits import NodeVolumeLimits
from carico.scheduler.plugins.volume.volume_binding import VolumeBinding, VolumeBindingArgs
from carico.scheduler.plugins.volume.volume_restrictions import VolumeRestrictions
from carico.scheduler.plugins.volume.volume_zone import VolumeZone
from carico.settings import CapacitySettings

__all__ = ["GROUP", "Factory", "FactoryWithArgs", "PluginTools"]

GROUP = "carico.scheduler.plugins"


@dataclass(frozen=True)
class PluginTools:
    """What a plugin may keep a reference to."""

    snapshot: Snapshot
    clock: Clock
    ledger: Ledger | None = None
    classes: ClassCostTable | None = None
    client: ApiCaller | None = None  # None in a dry run: nothing is written
    waiting: WaitingPods | None = None  # pods in flight, for plugins that permit or wait
    register: Registrations = None  # type: ignore[assignment]  # made below where it is not given

    def __post_init__(self) -> None:
        if self.register is None:
            object.__setattr__(self, "register", Registrations(self.snapshot, self.clock))


A = TypeVar("A")


@dataclass(frozen=True)
class FactoryWithArgs(Generic[A]):
    """A factory for a plugin with settings, which a profile sets in [scheduler.profiles.NAME.args.PLUGIN].

    `args` is a frozen dataclass whose fields are made by `setting` or `duration` of carico.config. If it extends a
    class of the scheduler's settings, it takes the process's values of these as defaults.
    """

    args: type[A]
    make: Callable[[PluginTools, A], Plugin]

    def __post_init__(self) -> None:
        fields = dataclasses.fields(self.args) if dataclasses.is_dataclass(self.args) else None
        if fields is None or not all("about" in field.metadata for field in fields):
            raise TypeError(f"{self.args!r} is not a dataclass whose fields are made by carico.config.setting")

    def inherited(self, process: type[Any]) -> set[str]:
        """The names of the arguments whose defaults are settings of this class."""
        bases = [base for base in self.args.__mro__ if dataclasses.is_dataclass(base) and issubclass(process, base)]
        return {field.name for base in bases for field in dataclasses.fields(base)}


Factory = Callable[[PluginTools], Plugin] | FactoryWithArgs[Any]
NO_FACTORIES: Mapping[str, Factory] = {}


def _capacity(tools: PluginTools, args: CapacityArgs) -> Plugin:
    if tools.ledger is None:
        raise UsageError("plugin Capacity needs a ledger of Pod-Capacity reports; leave it out of this profile")
    return Capacity(tools.ledger, tools.clock.monotonic, args, tools.classes)


def _volume_binding(tools: PluginTools, args: VolumeBindingArgs) -> Plugin:
    waiting = WaitingPods(tools.clock) if tools.waiting is None else tools.waiting
    return VolumeBinding(tools.client, tools.clock, waiting, args)


def default_supply(tools: PluginTools, settings: CapacitySettings) -> MeasuredSupply:
    """What the extender runs if no profile has a plugin of this kind."""
    assert tools.ledger is not None
    return Capacity(tools.ledger, tools.clock.monotonic, CapacityArgs.of(settings), tools.classes)


# The order of the filters is kube-scheduler's, and so are the reasons that users see; Capacity filters last.
BUILT_IN: dict[str, Factory] = {
    "PrioritySort": lambda _: PrioritySort(),
    "SchedulingGates": lambda _: SchedulingGates(),
    "Unsupported": lambda _: Unsupported(),
    "NodeUnschedulable": lambda _: NodeUnschedulable(),
    "NodeName": lambda _: NodeName(),
    "TaintToleration": lambda _: TaintToleration(),
    "NodeAffinity": lambda _: NodeAffinity(),
    "NodePorts": lambda _: NodePorts(),
    "NodeResourcesFit": lambda tools: NodeResourcesFit(tools.snapshot),
    "VolumeRestrictions": lambda _: VolumeRestrictions(),
    "NodeVolumeLimits": lambda _: NodeVolumeLimits(),
    "VolumeBinding": FactoryWithArgs(VolumeBindingArgs, _volume_binding),
    "VolumeZone": lambda _: VolumeZone(),
    "PodTopologySpread": lambda _: PodTopologySpread(),
    "InterPodAffinity": lambda _: InterPodAffinity(),
    "NodeDeclaredFeatures": lambda _: NodeDeclaredFeatures(),
    "ImageLocality": lambda _: ImageLocality(),
    "Capacity": FactoryWithArgs(CapacityArgs, _capacity),
    "DefaultPreemption": lambda tools: DefaultPreemption(tools.clock.monotonic),
}

DEFAULT = tuple(BUILT_IN)

# kube-scheduler's weights for the plugins that it has; Capacity weighs most, as it is the purpose of this scheduler.
WEIGHTS: dict[str, float] = {
    "Capacity": 5.0,
    "TaintToleration": 3.0,
    "NodeAffinity": 2.0,
    "PodTopologySpread": 2.0,
    "InterPodAffinity": 2.0,
    "ImageLocality": 1.0,
}


def known() -> dict[str, Factory]:
    """Every plugin that can be named; another package cannot replace a built-in one."""
    found: dict[str, Factory] = {}
    for entry in entry_points(group=GROUP):
        found[entry.name] = entry.load()
    return found | BUILT_IN


def make(
    names: Iterable[str],
    tools: PluginTools,
    args: Mapping[str, Any] | None = None,
    extra: Mapping[str, Factory] = NO_FACTORIES,
) -> list[Plugin]:
    """The plugins of a profile, in the order given; `args` by plugin, defaults for the others."""
    factories = known() | dict(extra)
    for name in names:
        if name not in factories:
            hint = nearest(name, factories) or f"; there are {', '.join(sorted(factories))}"
            raise UsageError(f"no plugin is called {name!r}{hint}")
    return [make_one(factories[name], tools, (args or {}).get(name)) for name in names]


def make_one(factory: Factory, tools: PluginTools, args: Any = None) -> Plugin:
    """The plugin of this factory; `args` None: with the defaults of its settings."""
    if isinstance(factory, FactoryWithArgs):
        return factory.make(tools, factory.args() if args is None else args)
    return factory(tools)
