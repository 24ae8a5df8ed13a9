"""A container's output for `kubectl logs`: the end of a file and, with follow, what is appended to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from carico.clock import Clock
from carico.embedded.apiserver.history import Plain
from carico.embedded.apiserver.http import ApiResponse, StreamSink
from carico.embedded.apiserver.status_error import StatusError, bad_request

TEXT = "text/plain"
PIECE = 64 << 10  # bytes
LOOK_EVERY = 0.2  # s between two reads of a file that is followed

LogFile = Callable[[str, str], Path | None]  # a pod's UID and a container's name to its log


def in_folder(folder: Path) -> LogFile:
    """Logs stored as FOLDER/UID/CONTAINER.log."""
    return lambda uid, container: folder / uid / f"{container}.log"


def container_of(pod: Plain, query: dict[str, str]) -> str:
    name, names = pod["metadata"]["name"], [one["name"] for one in pod["spec"]["containers"]]
    known = names + [one["name"] for one in pod["spec"].get("initContainers") or []]
    wanted = query.get("container", "")
    if not wanted and len(names) > 1:
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(known)}]")
    if wanted and wanted not in known:
        raise bad_request(f"container {wanted} is not valid for pod {name}")
    if query.get("previous") in ("true", "1"):
        raise bad_request(f'previous terminated container "{wanted or names[0]}" in pod "{name}" not found')
    if {"timestamps", "sinceTime", "sinceSeconds"} & {
        key for key, value in query.items() if value not in ("", "false")
    }:
        raise bad_request("lines of a log are kept without their times here: leave out --timestamps and --since")
    return wanted or names[0]


def whole_number(query: dict[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if text and not text.isdigit():
        raise bad_request(f'{name}: Invalid value: "{text}": must be a whole number')
    return int(text) if text else None


def opened(path: Path | None, pod: Plain, container: str) -> BinaryIO:
    try:
        if path is not None:
            return path.open("rb")
    except OSError:
        pass
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    state = next((one.get("state") or {} for one in statuses if one.get("name") == container), {})
    reason = (state.get("waiting") or {}).get("reason", "ContainerCreating")
    name = pod["metadata"]["name"]
    if "running" in state or "terminated" in state:
        raise StatusError(404, "NotFound", f'the log of container "{container}" in pod "{name}" is gone')
    raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')


def skip_to_tail(file: BinaryIO, lines: int) -> None:
    """Seek to the last `lines` lines, searching from the end."""
    end = at = file.seek(0, 2)
    seen = 0
    while at > 0:
        start = max(0, at - PIECE)
        file.seek(start)
        piece = file.read(at - start)
        for i in range(len(piece) - 1, -1, -1):
            if piece[i] == 0x0A and start + i != end - 1:
                seen += 1
                if seen == lines:
                    file.seek(start + i + 1)
                    return
        at = start
    file.seek(0 if lines else end)


def read(file: BinaryIO, limit: int | None) -> ApiResponse:
    with file:
        return ApiResponse(200, file.read() if limit is None else file.read(limit), TEXT)


class Following:
    """Sends what is in the file and what is appended, until the container has ended and everything was sent."""

    media = TEXT

    def __init__(self, file: BinaryIO, ended: Callable[[], bool], clock: Clock) -> None:
        self._file, self._ended, self._clock = file, ended, clock
        self._call_off: Callable[[], object] = lambda: None

    def begin(self, sink: StreamSink) -> None:
        self._sink = sink
        self.go_on()

    def go_on(self) -> None:
        self._call_off()
        over = self._ended()  # checked before the last read: everything written until then is read
        while self._sink.open and (piece := self._file.read(PIECE)):
            self._sink.send(piece)
        if over and self._sink.open:
            self._sink.finish()
            return
        self._call_off = self._clock.call_at(self._clock.monotonic() + LOOK_EVERY, self.go_on)

    def end(self) -> None:
        self._call_off()
        self._file.close()
