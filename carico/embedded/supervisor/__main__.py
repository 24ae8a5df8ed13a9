"""The job supervisor's loop: requests and results are lines of JSON on a socket.

    python -m carico.embedded.supervisor DESCRIPTOR

    {"do": "start", "id": 1, "command": […]}     → {"id": 1, "pid": 4711, "notes": []}  or  {"id": 1, "failed": "…"}
    {"do": "signal", "id": 1, "signal": 15, "whole": false}
    {"do": "kill", "id": 1}
                                                 → {"id": 1, "status": 9, "cpu": 0.1, "peak": 9000000, "oom": false}

It ends, with everything that it started, when the owner closes the socket or dies.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import Any

from carico.embedded.supervisor import launch
from carico.embedded.supervisor.jobs import Jobs

LOOK_EVERY = 1000  # ms; the socket of a dead owner may stay open in a child that the owner forked without exec
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


class JobSupervisor:
    def __init__(self, owner: socket.socket) -> None:
        self._socket = owner
        owner.set_inheritable(False)  # a job that held it open would hide the job supervisor's death from the owner
        self._owner_pid = os.getppid()
        self._jobs = Jobs(self._send)
        self._rest = b""
        self._open = True

    def run(self) -> None:
        launch.become_subreaper()
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)  # the owner decides how to react to these
        waking, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(waking, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(waking, select.POLLIN)
        while self._open and os.getppid() == self._owner_pid:
            ready = {descriptor for descriptor, _ in poll.poll(LOOK_EVERY)}
            if waking in ready:
                os.read(waking, 4096)
            self._jobs.reap()
            if self._socket.fileno() in ready:
                self._receive()
        self._jobs.end_all()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._open = False
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._do(json.loads(line))

    def _do(self, request: dict[str, Any]) -> None:
        match request["do"]:
            case "start":
                self._jobs.start(request["id"], launch.LaunchCommand(*request["command"]))
            case "signal":
                self._jobs.signal(request["id"], request["signal"], request["whole"])
            case "kill":
                self._jobs.kill(request["id"])

    def _send(self, event: dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(event).encode() + b"\n")
        except OSError:
            self._open = False


if __name__ == "__main__":
    JobSupervisor(socket.socket(fileno=int(sys.argv[1]))).run()
