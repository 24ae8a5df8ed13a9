"""The same ledger, filter and score as an HTTP extender, for clusters that keep the stock kube-scheduler.

    extenders:
    - urlPrefix: https://carico-scheduler.kube-system:9470/extender
      enableHTTPS: true
      tlsConfig: {certFile: …, keyFile: …, caFile: …}
      filterVerb: filter
      prioritizeVerb: prioritize
      bindVerb: bind
      weight: 5
      nodeCacheCapable: true

kube-scheduler decides on the next pod while the binding of the one before is still in flight. With `bindVerb` it
delegates the binding to the extender, with the node that it chose. The extender then runs the same filter on that node
again and charges it before the binding is sent, so that a burst cannot overcommit a node. A rejection there sends the
pod back to kube-scheduler's queue. So does a binding whose answer was lost: until its outcome is known, the charge
stays, and the filter accepts no other node for the pod.

Without `bindVerb` an extender does not learn which node was chosen. It then charges the node that it scored best
itself, for some seconds or until the watch event of the binding. kube-scheduler may choose another node; until the
watch event, one node has a charge too many and another one too few. The pods in flight bound the error.

The pod in a request is used as a reference only. The extender charges, remembers and binds the pod that the watch has
under this name and UID, and only if no profile of this scheduler applies to it.

https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/1819-scheduler-extender
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping

import numpy as np

from carico.clock import Clock
from carico.http.message import Page, Request
from carico.http.routes import POST, Route
from carico.kube.binding import Binding, BindOutcome, BindResult
from carico.kube.client import Client
from carico.kube.objects import Pod
from carico.kube.writer import ApiWriter
from carico.scheduler.assembly import Components
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cycle.unknown_outcome import settle
from carico.scheduler.extender.messages import (
    Arguments,
    BindingArguments,
    FilterAnswer,
    decoded,
    filtered_page,
    json_page,
    undecodable,
)
from carico.scheduler.extender.reservations import BOUND, UNTIL_KNOWN, ExtenderReservations
from carico.scheduler.extender.wakeup import ExtenderWakeup
from carico.scheduler.framework.contract import MAX_SCORE, OK, Code, Cycle, PreFilter, Score
from carico.scheduler.framework.in_flight import InFlightPod

HIGHEST = 10  # an extender scores from 0 to this
REMEMBERED = 1000  # filtered pods for which a bind request may follow
ARGUMENTS_LIMIT = 16 << 20  # bytes: what a kube-scheduler sends about 5,000 nodes
STANDBY = "this replica does not hold the Lease; try again"


class Extender:
    def __init__(
        self,
        parts: Components,
        clock: Clock,
        pods: Mapping[str, Pod],
        client: Client | None = None,
        writer: ApiWriter | None = None,
        may_bind: Callable[[], bool] = lambda: True,
    ) -> None:
        """`pods` is the watch's cache, by namespace/name."""
        self._parts, self._clock, self._pods, self._client = parts, clock, pods, client
        self._may_bind = may_bind
        self.reservations = ExtenderReservations(parts.ledger, parts.classes, clock.monotonic)
        self.wakeup = ExtenderWakeup(client, writer, clock)
        self._filtered: OrderedDict[str, None] = OrderedDict()  # UIDs
        self._in_flight: dict[str, InFlightPod] = {}  # by UID: bindings whose outcome is not known
        self._settling: set[asyncio.Task[None]] = set()
        self._settled = asyncio.Event()  # a binding's outcome became known
        self._draining = False
        parts.cluster.on_room, parts.cluster.on_reprice = self.wakeup.changed, self.wakeup.repriced
        self._supply = parts.measured

    def routes(self) -> dict[str, Route]:
        return {
            "/extender/filter": Route(self.filter, POST, ARGUMENTS_LIMIT),
            "/extender/prioritize": Route(self.prioritize, POST, ARGUMENTS_LIMIT),
            "/extender/bind": Route(self.bind, POST),
        }

    # --- the verbs ---

    def filter(self, request: Request) -> Page:
        arguments = decoded(request, Arguments)
        if arguments is None:
            return undecodable("ExtenderArgs")
        self.reservations.let_go()
        if (in_flight := self._in_flight.get(arguments.pod.uid)) is not None:
            self._count("filter", "in flight")
            return filtered_page(
                request, _only(in_flight.node, arguments.names), names_only=arguments.node_names is not None
            )
        pod = self._find(arguments.pod.namespace, arguments.pod.name, arguments.pod.uid)
        if pod is None:  # kube-scheduler's watch may be ahead of this one
            answer = self._judge(arguments.pod, arguments.names)
        else:
            self.reservations.withdraw(pod.uid)
            answer = self._judge(pod, arguments.names)
            self._remember(pod, answer)
        self._count("filter", "fits" if answer.good else "refused")
        return filtered_page(request, answer, names_only=arguments.node_names is not None)

    def prioritize(self, request: Request) -> Page:
        arguments = decoded(request, Arguments)
        if arguments is None:
            return undecodable("ExtenderArgs")
        pod = self._find(arguments.pod.namespace, arguments.pod.name, arguments.pod.uid)
        cycle, (rows, known) = self._cycle(pod or arguments.pod), self._rows(arguments.names)
        scores = dict.fromkeys(arguments.names, 0)
        if len(rows):
            if isinstance(self._supply, Score):
                found = np.rint(self._supply.score(cycle, rows) * HIGHEST / MAX_SCORE).astype(int)
                scores.update(zip(known, found.tolist(), strict=True))
            if pod is not None and pod.uid not in self._in_flight:
                self.reservations.put(pod, known[int(np.argmax(self._supply.pods_that_fit(cycle, rows)))])
        return json_page([{"Host": name, "Score": score} for name, score in scores.items()])

    async def bind(self, request: Request) -> Page:
        arguments = decoded(request, BindingArguments)
        if arguments is None:
            return undecodable("ExtenderBindingArgs")
        outcome = await self._bind(arguments)
        self._count("bind", outcome.bound.value)
        return json_page({"Error": "" if outcome.bound is BindResult.DONE else outcome.why or outcome.bound.value})

    @property
    def in_flight(self) -> int:
        """Bindings that were sent and whose outcome is not known."""
        return len(self._in_flight)

    async def drain(self) -> None:
        """Accepts no more bindings and waits for the outcome of those that were sent."""
        self._draining = True
        while self._in_flight:
            self._settled.clear()
            await self._settled.wait()

    async def close(self) -> None:
        """Cancels the tasks that wait for unknown outcomes."""
        for task in self._settling:
            task.cancel()
        await asyncio.gather(*self._settling, return_exceptions=True)

    # --- inside ---

    async def _bind(self, arguments: BindingArguments) -> BindOutcome:
        if self._client is None:
            return BindOutcome(BindResult.FAILED, "nothing is bound in a dry run")
        if arguments.uid in self._in_flight:
            return _in_flight(self._in_flight[arguments.uid].node)
        if self._draining or not self._may_bind():
            return BindOutcome(BindResult.FAILED, STANDBY)
        pod = self._find(arguments.pod_namespace, arguments.pod_name, arguments.uid)
        if pod is None:
            return BindOutcome(BindResult.FAILED, "no such pod of another scheduler is known here; try again")
        # No await from here to the charge: two bindings cannot both take the last free place.
        self.reservations.withdraw(pod.uid)
        if why := self._whatever_is_wrong(pod, arguments.node):
            return BindOutcome(BindResult.FAILED, why)
        answer = self._judge(pod, [arguments.node])
        if not answer.good:
            why = (answer.failed | answer.unresolvable)[arguments.node]
            return BindOutcome(BindResult.FAILED, f"{arguments.node} {why} any more")
        self.reservations.put(pod, arguments.node, UNTIL_KNOWN)
        in_flight = self._in_flight[pod.uid] = self._parts.waiting.enter(
            self._parts.snapshot.templates.info(pod), arguments.node
        )
        in_flight.sent = True
        sent = Binding(self._client, pod, arguments.node, self._clock, self._may_bind)
        outcome = await sent.send()
        if outcome.bound is BindResult.UNKNOWN:
            task = asyncio.create_task(self._follow(sent, in_flight))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
            return BindOutcome(
                BindResult.UNKNOWN, f"it is not known yet whether {arguments.node} got the pod: {outcome.why}"
            )
        self._known(in_flight, outcome)
        return outcome

    async def _follow(self, sent: Binding, in_flight: InFlightPod) -> None:
        self._known(in_flight, await settle(sent, in_flight, self._parts.slots))

    def _known(self, in_flight: InFlightPod, outcome: BindOutcome) -> None:
        """Withdraws or confirms the charge, by the outcome of the binding."""
        pod = in_flight.info.pod
        del self._in_flight[pod.uid]
        self._settled.set()
        self._parts.waiting.leave(in_flight)
        if in_flight.ended is not None or outcome.bound in (BindResult.GONE, BindResult.FAILED):
            self.reservations.withdraw(pod.uid)  # an entry that a watch event confirmed stays
        else:
            self.reservations.put(pod, outcome.pod.spec.node_name if outcome.pod else in_flight.node, BOUND)

    def _find(self, namespace: str, name: str, uid: str) -> Pod | None:
        """The pod from the watch, if no profile here applies to it: kube-scheduler may then schedule it."""
        pod = self._pods.get(f"{namespace}/{name}")
        if pod is None or pod.uid != uid or pod.spec.scheduler_name in self._parts.profiles:
            return None
        return pod

    def _remember(self, pod: Pod, answer: FilterAnswer) -> None:
        self._filtered[pod.uid] = None
        if len(self._filtered) > REMEMBERED:
            self._filtered.popitem(last=False)
        if answer.good:
            self.wakeup.placed(pod.uid)
        else:
            info = self._parts.snapshot.templates.info(pod)
            family = self._parts.classes.claim(info).key.family
            self.wakeup.refused(pod.uid, lambda: self._supply.least(info), family)
        if len(answer.good) == 1:  # kube-scheduler sends no prioritize request for a single node
            self.reservations.put(pod, answer.good[0])

    def _whatever_is_wrong(self, pod: Pod, node: str) -> str:
        """Runs every filter for a pod that was not filtered here, but by another replica or before a restart."""
        if pod.uid in self._filtered:
            del self._filtered[pod.uid]
            return ""
        row = self._parts.snapshot.rows.number.get(node)
        if row is None:
            return f"{node} is not known here; try again"
        profile = next(iter(self._parts.profiles.values()))
        feasibility = profile.feasible.run(self._cycle(pod))
        if not feasibility.status.ok:
            return feasibility.status.message
        if feasibility.mask[row]:
            return ""
        reasons = [reason.text for found in feasibility.why(row).values() for reason in found]
        return f"{node} {', '.join(reasons) or 'is kept for another pod'}"

    def _judge(self, pod: Pod, names: list[str]) -> FilterAnswer:
        """The verdict of Pod-Capacity about these nodes."""
        cycle, (rows, known) = self._cycle(pod), self._rows(names)
        status = self._supply.pre_filter(cycle) if isinstance(self._supply, PreFilter) else OK
        if status.code is Code.SKIP:
            return FilterAnswer(names, {}, {})
        if not status.ok:
            return FilterAnswer([], {}, dict.fromkeys(names, status.message))
        verdict = self._supply.filter(cycle, rows)
        answer = FilterAnswer([], {}, {})
        for i, name in enumerate(known):
            if not (reasons := verdict.at(i)):
                answer.good.append(name)
            else:
                where = answer.unresolvable if any(reason.unresolvable for reason in reasons) else answer.failed
                where[name] = ", ".join(reason.text for reason in reasons)
        for name in set(names).difference(known):  # nodes that the watch has not delivered yet
            if (reason := self._supply.unreported()) is None:
                answer.good.append(name)
            else:
                answer.unresolvable[name] = reason.text
        return answer

    def _cycle(self, pod: Pod) -> Cycle:
        return Cycle(self._parts.snapshot.templates.info(pod), self._parts.snapshot)

    def _rows(self, names: list[str]) -> tuple[RowArray, list[str]]:
        number = self._parts.snapshot.rows.number
        known = [name for name in names if name in number]
        return np.array([number[name] for name in known], dtype=np.intp), known

    def _count(self, verb: str, result: str) -> None:
        self._parts.metrics.extender.labels(verb, result).inc()


def _in_flight(node: str) -> BindOutcome:
    return BindOutcome(BindResult.UNKNOWN, f"its binding to {node} is in flight")


def _only(node: str, names: list[str]) -> FilterAnswer:
    """The filter result of a pod that may be bound to this node already."""
    why = f"waits for the outcome of the pod's binding to {node}"
    return FilterAnswer([name for name in names if name == node], {name: why for name in names if name != node}, {})
