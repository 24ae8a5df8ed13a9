"""The figures of a soak, each computed from the history alone. Each of them counts failures: 0 is good.

tests/scheduler/test_soak_checks.py and test_soak_victims.py give each a constructed history in which it must be bad,
and one in which it must not.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from itertools import combinations, pairwise

from harness.soak.history import (
    SETTLED_AFTER,
    Announced,
    ApiAnswers,
    BindingSent,
    Bound,
    Event,
    Evicted,
    EvictionSent,
    FaultBegan,
    FaultEnded,
    History,
    Memory,
    Nominated,
    PodSeen,
    PodState,
    Preempted,
    Renewed,
    State,
    in_order,
)

TOLERANCE = 1e-6  # units
SEEN_AFTER = 3.0  # s within which a watch delivers changes by others, on a busy machine
TOGETHER = 2.0  # s within which the victims of one nomination, and the nomination itself, reach the API server
SPARE_CPU, SPARE_UNITS = 500, 1.0  # beyond the pod's need, before "it fits" counts against a scheduler
LOOK = 0.5  # s between two checks for a stall
OLD_ENOUGH = 2.0  # s after its creation from which a pod counts as waiting
FIRST_MINUTES = 10.0  # min in which memory may grow: caches fill, code is loaded
NOISE = 1.0  # MB in total that cannot be distinguished from allocator noise: 12 MB/h in five minutes, 1.2 in fifty
WARM_UP = 90.0  # s of one process
SHORTEST_LIFE = 150.0  # s of one process after that, below which a slope of its memory is not significant


def bound_twice(history: History) -> list[str]:
    """Pods that got two nodes: seen on two, announced twice, or a Binding to another node after one was accepted."""
    found: list[str] = []
    nodes: dict[str, str] = {}
    announced: defaultdict[str, set[str]] = defaultdict(set)
    for event in in_order(history):
        if isinstance(event, Bound) and nodes.setdefault(event.uid, event.node) != event.node:
            found.append(f"{event.uid} was on {nodes[event.uid]} and then on {event.node}")
        elif isinstance(event, Announced):
            announced[event.uid].add(event.name)
            if len(announced[event.uid]) == 2:
                found.append(f"{event.uid} was announced twice")
    return found + _posted_twice(history)


def _posted_twice(history: History) -> list[str]:
    accepted: dict[str, BindingSent] = {}
    found: list[str] = []
    for event in in_order(history):
        if not isinstance(event, BindingSent):
            continue
        first = accepted.get(event.uid)
        if first is not None and first.node != event.node and event.at > first.answered_at:
            found.append(f"{event.uid} was bound to {first.node}, and then a binding to {event.node} was sent")
        if 200 <= event.status < 300:
            accepted.setdefault(event.uid, event)
    return found


def over_capacity(history: History) -> list[str]:
    """Our bindings that put more on a node than it can take, by the truth on which its reports are based.

    Our own pods count from their binding, pods of other schedulers only once our scheduler must have seen them.
    """
    found: list[str] = []
    state = State()
    for event in in_order(history):
        state.apply(event)
        if not isinstance(event, Bound) or event.uid not in state.pods or not state.pods[event.uid].seen.ours:
            continue
        full = state.full.get(event.node, float("inf"))
        load = state.load(event.node, before=_surely_seen(state))
        if load > full + TOLERANCE:
            key = state.pods[event.uid].seen.key
            found.append(f"{event.at:.1f} s: {key} made it {load:g} on {event.node}, which can take {full:g}")
    return found


def _surely_seen(state: State) -> float:
    """What others did before this moment must be known to a scheduler."""
    if state.calm_for(SETTLED_AFTER):
        return state.now - SEEN_AFTER
    return min(state.now, state.disturbed_since) - SEEN_AFTER


class _Preemptions:
    """Follows a history and judges each victim at the moment when its eviction began."""

    def __init__(self, history: list[Event]) -> None:
        self._history = history
        self._for: dict[str, str] = {}  # victim to its first preemptor
        self._nominated: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)  # node to time and pod
        self._taken: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)  # the same, including bound pods
        for event in history:
            if isinstance(event, Preempted):
                self._for.setdefault(event.uid, event.preemptor)
            elif isinstance(event, Nominated | Bound) and event.node:
                self._taken[event.node].append((event.at, event.uid))
                if isinstance(event, Nominated):
                    self._nominated[event.node].append((event.at, event.uid))
        self._sent_to = {e.uid: e.node for e in history if isinstance(e, BindingSent) and 200 <= e.status < 300}
        self._begin = self._begins()
        self._goal: dict[str, tuple[str, float]] = {}  # preemptor to its node, and since when
        self._condemned: defaultdict[str, set[str]] = defaultdict(set)  # preemptor to its victims
        self._leader, self._led_since = "", float("-inf")
        self.found: list[str] = []
        self.unexplained = 0

    def judge(self) -> None:
        state = State()
        for event in self._history:
            state.now = event.at
            if isinstance(event, Renewed) and event.holder != self._leader:
                self._leader, self._led_since = event.holder, event.at
            if isinstance(event, EvictionSent | Evicted) and self._begin.get(event.uid) == event.at:
                self._judge(state, state.pods.get(event.uid))
            state.apply(event)
            if isinstance(event, Nominated) and event.node:
                self._goal.setdefault(event.uid, (event.node, event.at))
            elif isinstance(event, BindingSent) and 400 <= event.status < 500:
                self._goal.pop(event.uid, None)  # it had a node, and the API server refused it: it starts over

    def _begins(self) -> dict[str, float]:
        """Victim to when the eviction that succeeded began: not an earlier one for another preemptor."""
        seen = {event.uid: event.at for event in reversed(self._history) if isinstance(event, PodSeen)}
        sent: defaultdict[str, list[float]] = defaultdict(list)
        for event in self._history:
            if isinstance(event, EvictionSent | Evicted):
                sent[event.uid].append(event.at)
        found: dict[str, float] = {}
        for uid in {event.uid for event in self._history if isinstance(event, Evicted)}:
            least = seen.get(self._for.get(uid, ""), float("-inf")) - SEEN_AFTER
            found[uid] = min((at for at in sent[uid] if at >= least), default=max(sent[uid]))
        return found

    def _judge(self, state: State, victim: PodState | None) -> None:
        if victim is None or victim.leaving:
            return
        # A victim whose binding no watch has delivered yet is known from the binding itself.
        there = victim.node or self._sent_to.get(victim.uid, "")
        candidates = self._who(victim.uid, there, state.now)
        if not candidates or not there:
            self.unexplained += 1
            return
        if all(self._needless(state, there, uid) for uid in candidates):
            names = " or ".join(state.pods[uid].seen.key for uid in candidates)
            held = self._goal[candidates[0]][0]
            self.found.append(
                f"{state.now:.1f} s: {victim.seen.key} on {there} had to go for {names}, which {held} would hold"
            )
        elif len(candidates) == 1 and self._goal.get(candidates[0], ("",))[0] != there:
            self._goal[candidates[0]] = (there, state.now)  # its first node, or the previous one does not fit
        for uid in candidates:
            self._condemned[uid].add(victim.uid)

    def _who(self, victim: str, node: str, moment: float) -> list[str]:
        """Possible preemptors: the one in its Event; without an Event, all pods nominated there around that time."""
        if victim in self._for:
            return [self._for[victim]]
        near = self._nominated[node]
        return sorted({uid for at, uid in near if -60.0 < at - moment < 30.0})

    def _needless(self, state: State, there: str, uid: str) -> bool:
        preemptor = state.pods.get(uid)  # a scheduler may have seen it some milliseconds before the benchmark did
        if preemptor is None or uid not in self._goal:
            return False
        node, since = self._goal[uid]
        if there == node and state.now - since < TOGETHER:
            return False
        # A new leader knows only what was written to the API server.
        if self._led_since > since and preemptor.nominated != node:
            return False
        if self._is_taken(state, node, preemptor):
            return False
        seen, condemned = _surely_seen(state), self._condemned[preemptor.uid]
        return state.would_hold(node, preemptor, since=since, seen=seen, condemned=condemned)

    def _is_taken(self, state: State, node: str, preemptor: PodState) -> bool:
        """Whether a pod that takes precedence is about to get the node: a scheduler knows before the API server."""
        soon = {uid for at, uid in self._taken[node] if state.now <= at < state.now + SEEN_AFTER}
        others = (state.pods[uid] for uid in soon if uid in state.pods and uid != preemptor.uid)
        return any(other.seen.priority > preemptor.seen.priority for other in others)


def victims_beyond_need(history: History) -> tuple[list[str], int]:
    """Evictions for a pod whose nominated node existed and would have held it; and the number of unexplained ones."""
    judge = _Preemptions(in_order(history))
    judge.judge()
    return judge.found, judge.unexplained


class _Stalls:
    def __init__(self, lease_duration: float) -> None:
        self._lease_duration = lease_duration
        self._answers, self._renewed_at, self._stop = True, float("-inf"), 0
        self._since: float | None = None
        self.longest, self.began, self.pod = 0.0, 0.0, ""

    def note(self, event: Event, state: State) -> None:
        if isinstance(event, ApiAnswers):
            self._answers = event.yes
        elif isinstance(event, Renewed) and event.holder:
            self._renewed_at = event.at
        elif isinstance(event, Bound) and event.uid in state.pods and state.pods[event.uid].seen.ours:
            self._since = None

    def look(self, state: State, now: float) -> None:
        held = now - self._renewed_at < self._lease_duration
        blocked = any(fault.stops_bindings for fault in state.faults.values())
        pod = self._fitting(state, now) if self._answers and held and not blocked else None
        if pod is None:
            self._since = None
            return
        if self._since is None:
            self._since = now
        if now - self._since > self.longest:
            self.longest, self.began, self.pod = now - self._since, self._since, pod.seen.key

    def _fitting(self, state: State, now: float) -> PodState | None:
        for pod in state.waiting():
            old = pod.seen.plain and now - pod.seen.at > OLD_ENOUGH
            if old and state.nodes_for(pod, cpu=SPARE_CPU, units=SPARE_UNITS):
                return pod
        return None


def longest_stall(history: History, lease_duration: float) -> tuple[float, str]:
    """Seconds in which the API server answered, a Lease was held, a pod fitted, and none of ours was bound."""
    events = in_order(history)
    if not events:
        return 0.0, ""
    state, stalls, moment = State(), _Stalls(lease_duration), events[0].at
    for event in events:
        while moment < event.at:
            stalls.look(state, moment)
            moment += LOOK
        state.apply(event)
        stalls.note(event, state)
    return stalls.longest, f"from {stalls.began:.1f} s on, e.g. {stalls.pod}" if stalls.longest else ""


def memory_growth(history: History) -> float | None:
    """MB per hour of the replica that grew fastest after the first minutes; None if none lived long enough."""
    events = in_order(history)
    if not events:
        return None
    start = events[0].at + 60 * FIRST_MINUTES
    lives: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    began: dict[str, float] = {}
    for event in events:
        if not isinstance(event, Memory):
            continue
        if event.at >= max(start, began.setdefault(event.process, event.at) + WARM_UP):
            lives[event.process].append((event.at, event.mb))
    spans = {process: points[-1][0] - points[0][0] for process, points in lives.items()}
    slopes = {process: _slope(lives[process]) for process, span in spans.items() if span >= SHORTEST_LIFE}
    surely = [slope if slope * spans[process] >= NOISE else min(slope, 0.0) for process, slope in slopes.items()]
    return max(surely) * 3600 if surely else None


def _slope(points: list[tuple[float, float]]) -> float:
    """The Theil–Sen estimator: the median of the slopes between all pairs of points; robust to single jumps."""
    return statistics.median((mb - before) / (at - then) for (then, before), (at, mb) in combinations(points, 2))


def faults_by_kind(history: History) -> dict[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    for event in history:
        if isinstance(event, FaultBegan):
            counts[event.kind] += 1
    return dict(sorted(counts.items()))


def calm_share(history: History) -> float:
    """Share of the time in which no fault was active."""
    events = in_order(history)
    active, calm = 0, 0.0
    for one, other in pairwise(events):
        active += isinstance(one, FaultBegan) - isinstance(one, FaultEnded)
        calm += 0.0 if active else other.at - one.at
    return calm / (events[-1].at - events[0].at) if len(events) > 1 else 1.0


def evictions(history: History) -> int:
    return len({event.uid for event in history if isinstance(event, Evicted)})
