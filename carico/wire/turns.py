"""Bounds how many messages a gRPC server processes in one iteration of its event loop.

gRPC accepts one new stream every two or three iterations. While thousands of messages wait, an iteration that processes
all of them takes a second, new streams wait for minutes, and gRPC cancels those beyond a thousand. So messages take
turns: the others wait for the next iterations, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque


class MessageTurns:
    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._left = at_once  # in this iteration
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._refills = False  # whether the next iteration is known to refill

    async def take(self) -> None:
        """Returns at once while there are turns left; otherwise in a later iteration."""
        if not self._refills:
            self._refill_next()
        if self._left:
            self._left -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _refill_next(self) -> None:
        self._refills = True
        asyncio.get_running_loop().call_soon(self._refill)

    def _refill(self) -> None:
        self._refills, self._left = False, self._at_once
        while self._left and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its stream has ended
                turn.set_result(None)
                self._left -= 1
        if self._waiting:
            self._refill_next()
