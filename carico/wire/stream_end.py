"""Why a server ends a stream, as it is sent to the client; and when a stream ends because its credential does."""

from __future__ import annotations

import random
from typing import NamedTuple

import grpc

# In the status of a stream that the server ends for a reason of its own, and that the client is to open again at once.
RECONNECT = ("carico-reconnect", "now")
# A stream ends when the credential of its caller does, or before that: by up to this share of what is left, and by at
# most EARLY_LIMIT seconds, so that streams opened together do not return together. A kubelet replaces a token after
# 80 % of its life, so there is a new one by then.
EARLY_SHARE = 0.1
EARLY_LIMIT = 300.0  # s
# s; shorter lifetimes are not shortened: without a newer token the client would reconnect more and more often
UNSTAGGERED = 30.0


class StreamEnd(NamedTuple):
    code: grpc.StatusCode
    detail: str
    metadata: tuple[tuple[str, str], ...] = ()


SERVER_ENDS = StreamEnd(grpc.StatusCode.UNAVAILABLE, "this replica ends")
NOT_READING = StreamEnd(grpc.StatusCode.RESOURCE_EXHAUSTED, "this stream does not read what is sent to it")
TOO_MANY = StreamEnd(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams at once")
TOKEN_ENDS = StreamEnd(grpc.StatusCode.UNAVAILABLE, "the token of this stream ends; open another one", (RECONNECT,))
NOT_ALLOWED = StreamEnd(grpc.StatusCode.PERMISSION_DENIED, "this caller has no right to this method")


def lifetime(ends_in: float) -> float:
    """Seconds that a stream lives whose credential ends in `ends_in` seconds.

    >>> lifetime(20.0), 3300.0 <= lifetime(3600.0) <= 3600.0
    (20.0, True)
    """
    if ends_in <= UNSTAGGERED:
        return max(0.0, ends_in)
    return ends_in - random.uniform(0.0, min(EARLY_SHARE * ends_in, EARLY_LIMIT))
