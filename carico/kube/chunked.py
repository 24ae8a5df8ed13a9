"""Decoder of HTTP's chunked transfer coding, fed with the pieces that the socket delivers.

>>> body = Chunked()
>>> body.feed(b"4\\r\\nWiki\\r\\n6;x=1\\r\\npe") + body.feed(b"dia \\r\\n0\\r\\nTrailer: 1\\r\\n"), body.done
(b'Wikipedia ', False)
>>> body.feed(b"\\r\\nHTTP"), body.done, body.beyond
(b'', True, b'HTTP')
"""

from __future__ import annotations

import re

from carico.errors import HttpError

LINE_LIMIT = 1024  # bytes of a chunk's size line, or of one trailer
_SIZE_LINE, _END_OF_CHUNK, _TRAILER = range(3)  # what the next line is
_SIZE = re.compile(rb"[0-9a-fA-F]{1,16}[ \t]*")


class Chunked:
    """A decoder that buffers at most one unfinished line.

    After the last chunk come trailers, usually none, and an empty line; only then is the response `done`. `beyond` is
    what came after it.
    """

    def __init__(self) -> None:
        self._rest = b""  # an unfinished line
        self._left = 0  # bytes of the current chunk still to come
        self._next = _SIZE_LINE
        self.done = False
        self.beyond = b""

    def feed(self, data: bytes) -> bytes:
        """Returns the bytes of the body in `data`."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        parts: list[bytes] = []
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._keep(data[at:])
                break
            self._take(data[at:end])
            at = end + 2
        if self.done:
            self.beyond = data[at:]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, line: bytes) -> None:
        if self._next == _SIZE_LINE:
            size = line.partition(b";")[0]
            if _SIZE.fullmatch(size) is None:
                raise HttpError(f"{line[:40]!r} is not the size of a chunk")
            self._left = int(size, 16)
            self._next = _END_OF_CHUNK if self._left else _TRAILER
        elif self._next == _TRAILER:
            self.done = not line
        elif line:
            raise HttpError(f"a chunk is longer than its size line: {line[:40]!r} follows it")
        else:
            self._next = _SIZE_LINE

    def _keep(self, rest: bytes) -> None:
        if len(rest) > LINE_LIMIT:
            raise HttpError("a line between two chunks does not end")
        self._rest = rest
