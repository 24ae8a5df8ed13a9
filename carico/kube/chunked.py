"""HTTP's chunked transfer coding, fed with whatever pieces the socket brings.

>>> body = Chunked()
>>> body.feed(b"4\\r\\nWiki\\r\\n6;x=1\\r\\npe") + body.feed(b"dia \\r\\n0\\r\\n\\r\\n"), body.done
(b'Wikipedia ', True)
"""

from __future__ import annotations

from carico.errors import CaricoError

SIZE_LIMIT = 1024  # bytes of a chunk's size line


class HttpError(CaricoError):
    """The connection to the API server broke, or spoke no HTTP."""


class Chunked:
    """A decoder with a memory of at most one unfinished size line."""

    def __init__(self) -> None:
        self._rest = b""  # an unfinished size line
        self._left = 0  # bytes of the current chunk still to come, its closing CR LF included
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """The body's bytes in `data`."""
        data, self._rest = self._rest + data, b""
        parts: list[bytes] = []
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                at = self._take(data, at, parts)
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._keep(data[at:])
                break
            self._start(data[at:end])
            at = end + 2
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, data: bytes, at: int, parts: list[bytes]) -> int:
        stop = min(len(data), at + self._left)
        content = stop - at - max(0, 2 - (self._left - (stop - at)))  # the last two bytes of a chunk are CR LF
        if content > 0:
            parts.append(data[at : at + content])
        self._left -= stop - at
        return stop

    def _start(self, line: bytes) -> None:
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            raise HttpError(f"{line[:40]!r} is not the size of a chunk") from None
        if size < 0:
            raise HttpError(f"{line[:40]!r} is not the size of a chunk")
        self.done = size == 0
        self._left = size + 2 if size else 0

    def _keep(self, rest: bytes) -> None:
        if len(rest) > SIZE_LIMIT:
            raise HttpError("the size line of a chunk does not end")
        self._rest = rest
