"""The review of tokens: what is asked, what is remembered, and what a flood of them costs the API server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from carico.errors import TokenRefused, TryAgain
from carico.kube import review_budget, token_reviews
from carico.kube.token_reviews import TokenMetrics, TokenReviews
from carico.testing import ManualClock
from harness.kube.made_tokens import AUDIENCE, account, of, unsigned
from harness.kube.scripted import ScriptedApi, Sent

USERS = (account("carico-agent"), account("carico-aggregator"), account("carico-scheduler"))
PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
HERE, THERE = "ipv4:10.0.0.1", "ipv4:10.0.0.2"
START = 1.8e9


def accepted(token: str, **changes: Any) -> dict[str, Any]:
    found = of(token)
    node = found["kubernetes.io"].get("node", {}).get("name")
    user: dict[str, Any] = {"username": found["sub"], "extra": {token_reviews.NODE_NAME: [node]} if node else {}}
    return {"authenticated": True, "audiences": [AUDIENCE], "user": user} | changes


class World:
    """An API server that accepts tokens whose signature is not `forged`."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall=START)
        self.api = ScriptedApi(self.clock, self._answer)
        self.registry = CollectorRegistry()
        metrics = TokenMetrics(self.registry, "scheduler")
        self.reviews = TokenReviews(self.api.client, AUDIENCE, USERS, self.clock, metrics)
        self.away = False
        self.changes: dict[str, Any] = {}

    async def _answer(self, sent: Sent) -> bytes:
        if self.away:
            raise OSError("connection refused")
        body = sent.body if isinstance(sent.body, dict) else json.loads(sent.body)
        assert (sent.path, body["spec"]["audiences"]) == (PATH, [AUDIENCE])
        token = body["spec"]["token"]
        good = not token.endswith("forged")
        status = accepted(token, **self.changes) if good else {"authenticated": False, "error": "invalid signature"}
        return json.dumps({"status": status}).encode()

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"carico_{name}_total", {"component": "scheduler", **labels}) or 0.0


def token(**changes: Any) -> str:
    return unsigned(exp=START + changes.pop("life", 3600.0), **changes)


def forged(number: int = 0, **changes: Any) -> str:
    return token(jti=str(number), **changes).rpartition(".")[0] + ".forged"


async def why(world: World, given: str, address: str = HERE) -> str:
    try:
        await world.reviews.review(given, address)
    except TokenRefused as error:
        return error.reason
    except TryAgain:
        return "try again"
    return ""


def test_what_a_review_says() -> None:
    async def scenario() -> None:
        world = World()
        found = await world.reviews.review(token(), HERE)
        assert found == (account("carico-agent"), "n1", START + 3600)
        assert (await world.reviews.review(token(node=""), HERE)).node == ""
        assert await why(world, forged()) == "unknown"
        assert world.count("token_reviews", result="authenticated") == 2
        assert world.count("token_reviews", result="refused") == 1
        for changes, reason in (
            ({"audiences": []}, "audience"),
            ({"audiences": ["https://kubernetes.default.svc"]}, "audience"),
            ({"user": {"username": account("default")}}, "account"),
            ({"user": None}, "account"),
            ({"authenticated": "true"}, "unknown"),
        ):
            world.changes = changes
            assert await why(world, token(jti=str(changes))) == reason
        world.changes = {"user": {"username": account("carico-agent"), "extra": {token_reviews.NODE_NAME: ["a", "b"]}}}
        assert (await world.reviews.review(token(jti="two"), HERE)).node == ""

    asyncio.run(scenario())


def test_what_no_review_would_accept_is_not_sent() -> None:
    async def scenario() -> None:
        world = World()
        for given, reason in (
            ("guessed", "malformed"),
            (token(aud=["https://kubernetes.default.svc"]), "audience"),
            (token(subject=account("default")), "account"),
            (token(subject=account("carico-agent", "other")), "account"),
            (token(life=-1.0), "expired"),
        ):
            assert await why(world, given) == reason
            assert world.count("tokens_refused", reason=reason) >= 1
        assert world.api.sent == []

    asyncio.run(scenario())


def test_answers_are_kept_for_a_short_time_and_never_past_the_tokens_end() -> None:
    async def scenario() -> None:
        world, good, bad, short = World(), token(), forged(), token(life=20.0)
        for _ in range(3):
            assert [await why(world, each) for each in (good, bad, short)] == ["", "unknown", ""]
        assert len(world.api.sent) == 3
        assert world.count("token_cache_answers", answer="accepted") == 4
        assert world.count("token_cache_answers", answer="refused") == 2
        world.clock.advance(11.0)
        assert [await why(world, each) for each in (good, bad, short)] == ["", "unknown", ""]
        assert len(world.api.sent) == 4, "only the refusal is asked again"
        world.clock.advance(10.0)
        assert await why(world, short) == "expired"
        world.clock.advance(50.0)
        assert await why(world, good) == ""
        assert len(world.api.sent) == 5

    asyncio.run(scenario())


def test_the_same_token_at_once_is_one_review() -> None:
    async def scenario() -> None:
        world, good = World(), token()
        assert await asyncio.gather(*(why(world, good) for _ in range(100))) == [""] * 100
        assert len(world.api.sent) == 1

    asyncio.run(scenario())


def test_while_the_api_server_is_away() -> None:
    async def scenario() -> None:
        world, known, other = World(), token(), token(node="n2")
        assert await why(world, known) == ""
        world.away = True
        assert await why(world, known) == ""
        assert await why(world, other) == "try again"
        world.clock.advance(61.0)
        assert await why(world, known) == "try again"
        assert world.count("token_reviews", result="error") == 2
        assert world.count("tokens_postponed") == 2
        world.away = False
        assert [await why(world, each) for each in (known, other)] == ["", ""]

    asyncio.run(scenario())


def test_a_flood_of_bad_tokens_uses_up_the_budget_of_its_own_address() -> None:
    async def scenario() -> None:
        world = World()
        flood = [asyncio.create_task(why(world, forged(number))) for number in range(2000)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(why(world, token(), THERE), 30) == ""
        await world.clock.turn(10.0)
        found = [await task for task in flood]
        most = review_budget.ADDRESS_BURST + review_budget.PATIENCE * review_budget.ADDRESS_RATE + 1
        assert found.count("unknown") <= most
        assert found.count("unknown") + found.count("try again") == 2000
        assert len(world.api.sent) <= most + 1

    asyncio.run(scenario())


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_reviews, "ENTRIES", 10)
    monkeypatch.setattr(review_budget, "ADDRESSES", 10)

    async def scenario() -> None:
        world = World()
        for number in range(50):
            await why(world, forged(number), f"ipv4:10.0.1.{number}")
            await why(world, token(jti=str(number)), f"ipv4:10.0.2.{number}")
        assert len(world.reviews._accepted) == len(world.reviews._refused) == 10
        assert len(world.reviews._budget._of) == 10
        assert not world.reviews._under_way

    asyncio.run(scenario())


def test_no_log_line_and_no_error_shows_a_token(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world, secret = World(), token()
        world.away = True
        for given in (secret, forged(), token(life=-5.0)):
            with pytest.raises((TokenRefused, TryAgain)) as found:
                await world.reviews.review(given, HERE)
            assert given.split(".")[1] not in f"{found.value!r} {caplog.text}"

    asyncio.run(scenario())
    assert "a token could not be reviewed: connection refused" in caplog.text
