"""For tests that measure a real machine, on which other load may appear at any moment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def one_of(tries: int) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """The test passes if one of its attempts does: a wrong formula fails all of them, a disturbed measurement one."""

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            for _ in range(tries - 1):
                try:
                    return test(*args, **kwargs)
                except AssertionError as error:
                    print(f"measured again: {error}")
            return test(*args, **kwargs)

        return run

    return decorate
