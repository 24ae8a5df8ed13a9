"""Reads a scenario: nodes, workloads, faults and the schedulers to compare. docs/simulator.md describes the file.

Everything is validated before anything runs. An error names the place in the file, the value and the fix.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta, Struct

from carico import durations
from carico.config import nearest
from carico.errors import UsageError
from carico.kube import quantity
from carico.scheduler.http import bounded_yaml

MOST_PODS = 200_000
MOST_NODES = 5_000
LONGEST = 86_400.0  # simulated s
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$"


class Seconds(float):
    """`30s`, `5m`, or a number of seconds."""


class Amount(float):
    """A Kubernetes quantity: `500m`, `2`, `8Gi`."""


class Ratio(float):
    """`5%` or `0.05`."""


Name = Annotated[str, Meta(pattern=DNS_LABEL)]
Count = Annotated[int, Meta(ge=0, le=MOST_PODS)]
Strings = dict[str, str]


class Resources(Struct, frozen=True, forbid_unknown_fields=True):
    cpu: Amount = Amount(0)  # cores
    memory: Amount = Amount(0)  # bytes
    extended: dict[str, int] = {}  # counted resources, such as example.com/gpu


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    cpu: Amount = Amount(math.inf)
    memory: Amount = Amount(math.inf)


class Base(Struct, frozen=True, forbid_unknown_fields=True):
    """What a node without pods uses."""

    cpu: Ratio = Ratio(0.05)
    memory: Ratio = Ratio(0.12)


class NodeGroup(Struct, frozen=True, forbid_unknown_fields=True):
    cores: Annotated[float, Meta(gt=0, le=1024)]
    memory: Amount
    count: Annotated[int, Meta(ge=1, le=MOST_NODES)] = 1
    name: Name = "node"  # node-0, node-1, …
    base: Base = Base()
    contention: Ratio = Ratio(0.08)  # share of the work that is lost to switching on a very crowded node
    max_pods: Annotated[int, Meta(ge=1, le=10_000)] = 110
    labels: Strings = {}
    extended: dict[str, int] = {}

    def __post_init__(self) -> None:
        if self.memory <= 0:
            raise ValueError("memory must be more than 0, such as 8Gi")


class Phase(Struct, frozen=True, forbid_unknown_fields=True):
    """`cpu` is work in core-seconds and ends the phase when it is done; `lasts` ends it after a time."""

    cpu: Seconds = Seconds(0)
    lasts: Seconds = Seconds(0)
    threads: Annotated[float, Meta(ge=0, le=4096)] = 1.0
    memory: Amount = Amount(0)
    ramp: bool = False

    def __post_init__(self) -> None:
        if (self.cpu > 0) == (self.lasts > 0):
            raise ValueError("a phase has either cpu (core-seconds of work) or lasts (a time), more than 0")
        if self.cpu > 0 and self.threads <= 0:
            raise ValueError("a phase with work needs threads, more than 0")


class ScenarioPod(Struct, frozen=True, forbid_unknown_fields=True):
    phases: Annotated[tuple[Phase, ...], Meta(min_length=1)] = ()
    pattern: str = ""  # a generator of carico/sim/patterns, instead of phases
    spread: Ratio = Ratio(0.1)  # each pod's work, times and memory differ by up to so much
    requests: Resources = Resources()
    limits: Limits = Limits()
    labels: Strings = {}
    node_selector: Strings = {}
    priority: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    stuck: bool = False  # its image cannot be pulled
    crashes: bool = False

    def __post_init__(self) -> None:
        if bool(self.phases) == bool(self.pattern):
            raise ValueError("a pod has either phases or a pattern")


class ReplicaChange(Struct, frozen=True, forbid_unknown_fields=True):
    at: Seconds
    replicas: Count


class Autoscale(Struct, frozen=True, forbid_unknown_fields=True):
    most: Count
    least: Count = 1
    target: Ratio = Ratio(0.8)  # cpu usage as a share of the request


class ScenarioWorkload(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    pod: ScenarioPod
    pods: Annotated[int, Meta(ge=1, le=MOST_PODS)] = 1
    controller: str = "job"  # a name of carico/sim/controllers
    namespace: Name = "default"
    at: Seconds = Seconds(0)
    per_second: Annotated[float, Meta(gt=0, le=10_000)] | None = None  # arrivals, of the controller `arrivals`
    retries: Count = 6  # of a job
    scale: tuple[ReplicaChange, ...] = ()  # of a deployment
    autoscale: Autoscale | None = None


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str  # a name of carico/sim/faults
    at: Seconds
    lasts: Seconds = Seconds(30)
    nodes: tuple[str, ...] = ()  # names; empty: all
    share: Ratio = Ratio(1.0)  # of the nodes, chosen by the seed


class SchedulerEntry(Struct, frozen=True, forbid_unknown_fields=True):
    policy: str  # a name of carico/sim/policies
    name: str = ""  # in the results; the policy's if empty
    requests: dict[str, Resources] | str = {}  # per workload, in place of its own; `right`: 95th percentile of usage
    settings: dict[str, Any] = {}  # of carico's scheduler: threshold, profiles, …
    agent: dict[str, Any] = {}  # of carico's agents: estimator, smoothing, full, …
    args: dict[str, Any] = {}  # of the policy

    @property
    def title(self) -> str:
        return self.name or self.policy


class Telemetry(Struct, frozen=True, forbid_unknown_fields=True):
    rate_hz: Annotated[int, Meta(ge=1, le=20)] = 10
    report_lag: Seconds = Seconds(0.07)  # mean delay of a report
    exchange_every: Annotated[int, Meta(ge=1, le=60)] = 1  # s between two messages of a node to the aggregator


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    nodes: Annotated[tuple[NodeGroup, ...], Meta(min_length=1)]
    workloads: Annotated[tuple[ScenarioWorkload, ...], Meta(min_length=1)]
    name: Name = "scenario"
    about: str = ""
    seconds: Seconds = Seconds(300)  # it ends earlier when all pods of jobs and arrivals have ended
    warm_up: Seconds = Seconds(5)  # before the first workload
    schedulers: tuple[SchedulerEntry | str, ...] = ("carico",)
    faults: tuple[Fault, ...] = ()
    telemetry: Telemetry = Telemetry()

    @property
    def entries(self) -> tuple[SchedulerEntry, ...]:
        return tuple(SchedulerEntry(policy=one) if isinstance(one, str) else one for one in self.schedulers)

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= LONGEST:
            raise ValueError(f"seconds is {self.seconds:g}; it must be more than 0 and at most 24h")
        _unique("workloads", [one.name for one in self.workloads])
        _unique("schedulers", [one.title for one in self.entries])
        nodes, pods = sum(group.count for group in self.nodes), sum(one.pods for one in self.workloads)
        if nodes > MOST_NODES:
            raise ValueError(f"there are {nodes:,} nodes; the simulator takes at most {MOST_NODES:,}")
        if pods > MOST_PODS:
            raise ValueError(f"there are {pods:,} pods; the simulator takes at most {MOST_PODS:,}")


def load(file: Path) -> Scenario:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    return parse(text, str(file))


def parse(text: str, where: str = "scenario") -> Scenario:
    """
    >>> parse("nodes: [{cores: 4, memory: 8Gi}]\\nworkloads: [{name: pi, pod: {phases: [{cpu: 5s}]}}]").nodes[0].memory
    8589934592.0
    """
    try:
        plain = bounded_yaml.load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{where}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(plain, dict):
        raise UsageError(f"{where}: has no mapping with nodes and workloads at its top level")
    try:
        return msgspec.convert(plain, Scenario, dec_hook=_value)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {_sentence(str(error))}") from error


def _value(kind: type, raw: object) -> object:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise ValueError(f"{raw!r} is neither a number nor a text")
    if kind is Seconds:
        return Seconds(_not_negative(durations.parse(str(raw)) if _is_duration(raw) else math.nan, raw, "30s"))
    if kind is Amount:
        return Amount(_not_negative(_quantity(str(raw)), raw, "500m or 8Gi"))
    assert kind is Ratio
    text = str(raw).strip()
    number = float(text[:-1]) / 100.0 if re.fullmatch(r"[\d.]+%", text) else _number(text)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{raw!r} is not a share; write it like 5% or 0.05")
    return Ratio(number)


def _is_duration(raw: object) -> bool:
    try:
        durations.parse(str(raw))
    except ValueError:
        return False
    return True


def _quantity(text: str) -> float:
    try:
        return float(quantity.parse(text))
    except ValueError:
        return math.nan


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _not_negative(value: float, raw: object, example: str) -> float:
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"{raw!r} is not an amount of 0 or more; write it like {example}")
    return value


def _unique(what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two of the {what} are called {name!r}; give each its own name")


UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`(?: - at `(?P<path>[^`]*)`)?")
PLACED = re.compile(r"(?P<what>.*?)(?: - at `\$?(?P<path>[^`]*)`)?$", re.DOTALL)


def _sentence(message: str) -> str:
    """msgspec's message with the place first, and the nearest known field.

    >>> _sentence("Object contains unknown field `memry` - at `$.nodes[0]`")
    "nodes[0]: there is no field 'memry'; did you mean 'memory'?"
    >>> _sentence("Expected `float` > 0.0 - at `$.nodes[0].cores`")
    'nodes[0].cores: expected `float` > 0.0'
    """
    if unknown := UNKNOWN.match(message):
        place = _place(unknown["path"] or "")
        return f"{place}there is no field {unknown['field']!r}{nearest(unknown['field'], _FIELDS)}"
    placed = PLACED.match(message)
    assert placed is not None
    what = placed["what"]
    return f"{_place(placed['path'] or '')}{what[:1].lower()}{what[1:]}"


def _place(path: str) -> str:
    path = path.removeprefix("$").removeprefix(".")
    return f"{path}: " if path else ""


_FIELDS = sorted(
    {
        field
        for struct in (
            Scenario, NodeGroup, ScenarioWorkload, ScenarioPod, Phase, Resources, Limits, Base, ReplicaChange,
            Autoscale, Fault, SchedulerEntry, Telemetry,
        )
        for field in struct.__struct_fields__
    }
)  # fmt: skip
