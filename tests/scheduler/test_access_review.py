"""Callers of the private pages, as the API server sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import msgspec
import pytest

from carico.errors import HttpError, RejectedRequest
from carico.http.head import RequestHead, parse
from carico.scheduler.http.access_review import BURST, KEPT, REMEMBERED, AccessReview
from carico.testing import ManualClock
from harness.kube.network import Asked, client_of


class ApiServer:
    """Knows the token "good" as alice, who may get /debug/queue."""

    def __init__(self) -> None:
        self.reviews: list[tuple[str, dict[str, Any]]] = []
        self.away = False

    async def answer(self, asked: Asked) -> bytes:
        if self.away:
            raise HttpError("away")
        self.reviews.append((asked.path, asked.body["spec"]))
        return msgspec.json.encode({"status": getattr(self, asked.body["kind"])(asked.body["spec"])})

    def TokenReview(self, spec: dict[str, Any]) -> dict[str, Any]:
        user = {"username": "alice", "uid": "1", "groups": ["people"], "extra": {"scopes": ["a"]}}
        return {"authenticated": True, "user": user} if spec["token"] == "good" else {"authenticated": False}

    def SubjectAccessReview(self, spec: dict[str, Any]) -> dict[str, Any]:
        return {"allowed": spec["nonResourceAttributes"] == {"path": "/debug/queue", "verb": "get"}}


class World:
    def __init__(self) -> None:
        self.server, self.clock = ApiServer(), ManualClock()
        self.access = AccessReview(client_of(self.server.answer), self.clock)

    async def ask(self, token: str, path: str = "/debug/queue", method: str = "GET") -> int:
        head = parse(f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        return await outcome(self.access, head)


async def outcome(access: AccessReview, head: RequestHead) -> int:
    try:
        await access.check(head)
    except RejectedRequest as refused:
        return refused.status
    return HTTPStatus.OK


def playing(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario(World())

    asyncio.run(whole())


def test_the_api_server_decides_who_may_read_what() -> None:
    async def scenario(world: World) -> None:
        assert await world.ask("good") == HTTPStatus.OK
        assert world.server.reviews == [
            ("/apis/authentication.k8s.io/v1/tokenreviews", {"token": "good"}),
            (
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                {
                    "user": "alice", "uid": "1", "groups": ["people"], "extra": {"scopes": ["a"]},
                    "nonResourceAttributes": {"path": "/debug/queue", "verb": "get"},
                },
            ),
        ]  # fmt: skip
        assert await world.ask("good", "/debug/ledger") == HTTPStatus.FORBIDDEN
        assert await world.ask("good", method="POST") == HTTPStatus.FORBIDDEN
        assert await world.ask("bad") == HTTPStatus.UNAUTHORIZED

    playing(scenario)


@pytest.mark.parametrize("header", ["", "Basic YTpi", "Bearer", "Bearer a b", "Bearer " + "x" * 10_000])
def test_without_a_token_no_review_is_sent(header: str) -> None:
    async def scenario(world: World) -> None:
        head = RequestHead("GET", "/debug/queue", {}, {"authorization": header} if header else {}, True)
        assert await outcome(world.access, head) == HTTPStatus.UNAUTHORIZED
        assert world.server.reviews == []

    playing(scenario)


@pytest.mark.parametrize(("token", "reviews"), [("good", 2), ("bad", 1)])
def test_answers_are_kept_for_a_while(token: str, reviews: int) -> None:
    async def scenario(world: World) -> None:
        for _ in range(100):
            await world.ask(token)
        assert len(world.server.reviews) == reviews
        world.clock.advance(KEPT)
        await world.ask(token)
        assert len(world.server.reviews) == 2 * reviews

    playing(scenario)


def test_guessing_tokens_makes_the_api_server_work_at_a_bounded_rate() -> None:
    async def scenario(world: World) -> None:
        answers = [await world.ask(f"guess-{i}") for i in range(1000)]
        assert answers.count(HTTPStatus.UNAUTHORIZED) == len(world.server.reviews) == BURST
        assert answers.count(HTTPStatus.TOO_MANY_REQUESTS) == 1000 - BURST
        world.clock.advance(1)
        assert await world.ask("good") == HTTPStatus.OK
        for i in range(2 * REMEMBERED):
            world.clock.advance(1)
            await world.ask(f"slow-guess-{i}")
        assert len(world.access._kept) == REMEMBERED

    playing(scenario)


def test_an_unavailable_api_server_allows_no_request_and_is_tried_again() -> None:
    async def scenario(world: World) -> None:
        world.server.away = True
        assert await world.ask("good") == HTTPStatus.SERVICE_UNAVAILABLE
        world.server.away = False
        assert await world.ask("good") == HTTPStatus.OK

    playing(scenario)
