"""What is known of a binding after each kind of answer, and after none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from carico.errors import ApiError, HttpError
from carico.kube import pods
from carico.kube.binding import SERVER_ERROR, UNANSWERED, Binding, BindOutcome, BindResult
from carico.kube.client import Client
from carico.kube.credentials import fixed
from carico.testing import ManualClock, make_pod
from harness.kube.network import Asked, PlayedNetwork

POD = make_pod("p")
REFUSED, LOST, FENCED, TWICE = "refused", "lost", "fenced", "twice"


class Script:
    """Answers attempts by the script, its last entry repeatedly; `node` is what a look shows."""

    def __init__(self, *answers: str | int, node: str = "") -> None:
        self._answers, self.node = list(answers), node
        self.leads = True
        self.looks = self.tries = 0
        self.binds = False  # an attempt is in flight, not a look

    def next(self) -> str | int:
        self.tries += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def reached(self) -> None:
        """Called for each connection: one that is refused ends its attempt before anything is sent."""
        if self.binds and self._answers[0] == REFUSED:
            self.next()
            raise HttpError("connection refused")

    async def answer(self, asked: Asked) -> bytes:
        if asked.method == "GET":
            self.looks += 1
            meta = {"name": POD.name, "namespace": POD.namespace, "uid": POD.uid}
            return msgspec.json.encode({"metadata": meta, "spec": {"nodeName": self.node}})
        answer = self.next()
        if answer == TWICE:  # the idle connection broke, and before the request is sent again the Lease is lost
            self.leads = False
        if answer in (LOST, TWICE):
            raise HttpError("the connection was closed")
        if isinstance(answer, int) and answer >= 300:
            raise ApiError(answer, "", "made up by a test")
        return b"{}"


class ScriptedClient(Client):
    def __init__(self, script: Script, clock: ManualClock) -> None:
        network = PlayedNetwork(
            script.answer, refused=script.reached, kept=any(answer == TWICE for answer in script._answers)
        )
        super().__init__(fixed("http://played"), clock=clock, connect=network.connect)
        self._script = script

    async def create(self, *args: Any, **options: Any) -> None:
        self._script.binds = True
        try:
            await super().create(*args, **options)
        finally:
            self._script.binds = False


def playing(scenario: Callable[[ManualClock], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario(ManualClock()))


async def sent(script: Script, clock: ManualClock, *, idle: bool = False) -> tuple[Binding, BindOutcome]:
    """`idle`: the first attempt finds a connection that has been used before."""
    client = ScriptedClient(script, clock)
    if idle:
        await pods.read(client, POD.namespace, POD.name)
    made = Binding(client, POD, "a", clock, lambda: script.leads)
    task = asyncio.create_task(made.send())
    await clock.turn(10)
    return made, task.result()


@pytest.mark.parametrize(
    ("answers", "bound"),
    [
        ((201,), BindResult.DONE),
        ((REFUSED, REFUSED, 429, 500, 201), BindResult.DONE),
        ((REFUSED,), BindResult.FAILED),  # nothing was ever sent
        ((429,), BindResult.FAILED),
        ((403,), BindResult.FAILED),
        ((302,), BindResult.FAILED),
        ((409,), BindResult.FAILED),  # and the pod has no node
        ((500,), BindResult.UNKNOWN),
        ((504,), BindResult.UNKNOWN),
        ((LOST,), BindResult.UNKNOWN),
        ((LOST, 403), BindResult.UNKNOWN),  # which does not concern the first one
        ((LOST, REFUSED), BindResult.UNKNOWN),
        ((LOST, 201), BindResult.DONE),
        ((TWICE,), BindResult.UNKNOWN),
    ],
)
def test_a_few_tries_in_a_row(answers: tuple[str | int, ...], bound: BindResult) -> None:
    async def scenario(clock: ManualClock) -> None:
        _, outcome = await sent(Script(*answers), clock, idle=TWICE in answers)
        assert outcome.bound is bound

    playing(scenario)


@pytest.mark.parametrize("answer", [LOST, 500, 504, 409])
@pytest.mark.parametrize(("node", "bound"), [("a", BindResult.DONE), ("b", BindResult.ELSEWHERE)])
def test_a_pod_that_has_a_node_settles_it(answer: str | int, node: str, bound: BindResult) -> None:
    async def scenario(clock: ManualClock) -> None:
        _, outcome = await sent(Script(answer, node=node), clock)
        assert outcome.bound is bound
        assert (outcome.pod is not None) == (bound is BindResult.ELSEWHERE)

    playing(scenario)


def test_a_replica_that_no_longer_leads_sends_nothing() -> None:
    async def scenario(clock: ManualClock) -> None:
        script = Script(201)
        script.leads = False
        _, outcome = await sent(script, clock)
        assert (outcome.bound, outcome.why, script.tries) == (BindResult.FAILED, "this replica no longer leads", 0)

    playing(scenario)


@pytest.mark.parametrize(("answers", "seconds"), [((500,), SERVER_ERROR), ((LOST, REFUSED), UNANSWERED)])
def test_a_pod_without_a_node_is_proof_after_a_while(answers: tuple[str | int, ...], seconds: float) -> None:
    async def scenario(clock: ManualClock) -> None:
        made, outcome = await sent(Script(*answers), clock)
        assert outcome.bound is BindResult.UNKNOWN
        await clock.turn(max(0.0, seconds - 10))
        while (outcome := await made.again()).bound is BindResult.UNKNOWN:
            assert clock.monotonic() < seconds + 5
            await clock.turn(1)
        assert outcome.bound is BindResult.FAILED
        assert clock.monotonic() >= seconds

    playing(scenario)


def test_only_a_lost_request_is_sent_again_later() -> None:
    """An answer of 5xx is the end of its request; another one would only prolong the doubt."""

    async def scenario(clock: ManualClock) -> None:
        for answer, more in ((500, 0), (LOST, 1)):
            script = Script(answer)
            made, _ = await sent(script, clock)
            before = script.tries
            await made.again()
            assert script.tries - before == more

    playing(scenario)
