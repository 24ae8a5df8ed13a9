"""Builds the parts of a scheduler from its settings, without anything that uses the network.

Tests, benchmarks, `explain` and the extender use the same parts as the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from carico import metrics as pages
from carico.clock import Clock, SystemClock
from carico.errors import UsageError
from carico.kube.calls import ApiCall
from carico.kube.client import Client
from carico.scheduler.cache.class_costs import ClassCostTable
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.rows import RowIndex
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cluster_cache import ClusterCache
from carico.scheduler.cycle.binding_slots import PluginClient, Slots
from carico.scheduler.cycle.decision_log import DecisionLog
from carico.scheduler.cycle.pod_grouping import ProfileGrouping
from carico.scheduler.cycle.profile_settings import ProfileSettings, read_profiles
from carico.scheduler.cycle.profiles import Profile
from carico.scheduler.framework.contract import Code, MeasuredSupply, PricedSupply, error
from carico.scheduler.framework.in_flight import WaitingPods
from carico.scheduler.framework.registrations import Registrations
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.plugins import registry as plugins
from carico.scheduler.queue.entries import Gate
from carico.scheduler.queue.scheduling_queue import Queue
from carico.settings import SchedulerSettings


@dataclass(slots=True)
class Components:
    snapshot: Snapshot
    ledger: Ledger
    classes: ClassCostTable
    queue: Queue
    cluster: ClusterCache
    profiles: dict[str, Profile]
    metrics: SchedulerMetrics
    registry: CollectorRegistry
    ring: DecisionLog
    slots: Slots
    waiting: WaitingPods
    measured: MeasuredSupply  # what the extender runs
    registrations: Registrations


def assemble(
    settings: SchedulerSettings,
    clock: Clock,
    client: Client | None,
    may_bind: Callable[[], bool] = lambda: True,
    on_queue_move: Callable[[str], object] = lambda _: None,
    factories: Mapping[str, plugins.Factory] = plugins.NO_FACTORIES,
) -> Components:
    """`on_queue_move` is called with the queue that a pod has entered. `factories` are of further plugins that profiles
    may name; they replace registered ones of the same name.
    """
    chosen = read_profiles(settings.profiles, settings, factories)
    registry = pages.new_registry("scheduler")
    metrics = SchedulerMetrics(registry)
    rows = RowIndex()
    snapshot = Snapshot(rows)
    classes = ClassCostTable(
        settings.first_cost_cores,
        settings.first_cost_memory,
        settings.class_costs_max_age,
        settings.class_ignored_labels,
    )
    ledger = Ledger(
        rows,
        classes.charge,
        validate=settings.validate,
        heartbeat=settings.heartbeat,
        startup_patience=settings.startup_patience,
        on_handover=metrics.handover.observe,
    )
    registrations = Registrations(snapshot, clock, lambda plugin: metrics.plugin_errors.labels(plugin).inc())
    slots, waiting = Slots(settings.binders), WaitingPods(clock)
    limited = None if client is None else PluginClient(client, slots, may_bind)
    tools = plugins.PluginTools(
        snapshot=snapshot,
        ledger=ledger,
        classes=classes,
        clock=clock,
        client=limited,
        waiting=waiting,
        register=registrations,
    )
    profiles = {name: _profile(name, one, tools, metrics, factories) for name, one in chosen.items()}
    queue = _queue(settings, profiles, metrics, on_queue_move)
    cluster = ClusterCache(
        snapshot, ledger, queue, profiles, clock.monotonic, classes,
        on_pod=waiting.pod_changed, on_node_removed=waiting.node_removed,
    )  # fmt: skip
    registrations.listen(cluster.wake)
    ring = DecisionLog(settings.decisions)
    return Components(
        snapshot, ledger, classes, queue, cluster, profiles, metrics, registry, ring, slots, waiting,
        _measured(profiles, tools, settings), registrations,
    )  # fmt: skip


def registered_calls(settings: SchedulerSettings) -> list[ApiCall]:
    """The requests that plugins of these profiles need for kinds that they follow."""
    return assemble(settings, SystemClock(), None).registrations.calls


def _profile(
    name: str,
    chosen: ProfileSettings,
    tools: plugins.PluginTools,
    metrics: SchedulerMetrics,
    factories: Mapping[str, plugins.Factory],
) -> Profile:
    made = plugins.make(chosen.plugins, tools, chosen.args, factories)
    return Profile(name, made, plugins.WEIGHTS | chosen.weights, metrics)


def _measured(profiles: dict[str, Profile], tools: plugins.PluginTools, settings: SchedulerSettings) -> MeasuredSupply:
    found = (p for profile in profiles.values() for p in profile.plugins if isinstance(p, MeasuredSupply))
    return next(found, None) or plugins.default_supply(tools, settings)


def _queue(
    settings: SchedulerSettings,
    profiles: dict[str, Profile],
    metrics: SchedulerMetrics,
    on_queue_move: Callable[[str], object],
) -> Queue:
    """One queue for all profiles, sorted by their common QueueSort plugin, as in kube-scheduler."""
    sorts = [(sort.name, profile.sort_key(sort)) for profile in profiles.values() for sort in profile.sorts]
    if not sorts or len({name for name, _ in sorts}) > 1:
        raise UsageError("all profiles share one queue: each needs the same queue sort plugin, e.g. PrioritySort")

    def gate(pod: PodInfo) -> Gate | None:
        profile = profiles[pod.pod.spec.scheduler_name]
        for plugin in profile.pre_enqueues:
            try:
                status = plugin.pre_enqueue(pod)
            except Exception as problem:
                profile.contain(plugin.name, problem)
                status = error(f"{plugin.name} broke: {problem}")
            if not status.ok:
                interests = profile.interests({plugin.name})
                return Gate(plugin.name, status, interests, broken=status.code is Code.ERROR)
        return None

    def on_move(queue: str, event: str) -> None:
        metrics.incoming.labels(queue, event).inc()
        on_queue_move(queue)

    supplies = [(profile, plugin) for profile in profiles.values() for plugin in profile.supplies]
    return Queue(
        sorts[0][1],
        gate,
        first_backoff=settings.first_backoff,
        last_backoff=settings.last_backoff,
        flush_after=settings.flush_after,
        supplies={plugin.supply: profile.available(plugin) for profile, plugin in supplies},
        needs_of={plugin.supply: plugin.needs_of for _, plugin in supplies if isinstance(plugin, PricedSupply)},
        on_move=on_move,
        groups=ProfileGrouping(profiles) if any(profile.groupings for profile in profiles.values()) else None,
    )
