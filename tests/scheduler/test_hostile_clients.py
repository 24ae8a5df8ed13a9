"""Clients that want to keep a real scheduler from its probes, or to fill its memory."""

from __future__ import annotations

import json
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from harness.cluster.ports import free_port
from harness.scheduler.fleet import SchedulerProcess

SILENT, BODY = 200, 16 << 20
MORE_MB = 32.0  # what it may have beyond rest; measured were some 5
CPU_SECONDS = 2.0  # of the scheduler for one question; 1e8000000 took 5 when it was computed
PATHS = (b"/simulate", b"/simulate", b"/healthz", b"/explain", b"/extender/filter", b"/nothing")
# No server listens there: the pages do not depend on it.
KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[SchedulerProcess]:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    process = SchedulerProcess(tmp_path / "kubeconfig", free_port(), "--no-leader-elect")
    try:
        yield process
    finally:
        process.stop(signal.SIGKILL)


def ports(scheduler: SchedulerProcess) -> list[int]:
    return [int(scheduler.wait_for(r" listen on port (\d+)")[1]), scheduler.page_port]


def healthy(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
        return bool(answer.status == 200)


def send_body(port: int, path: bytes, answers: list[bytes]) -> None:
    """Sends all 16 MB whatever the response is, or as much as is taken."""
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        try:
            client.sendall(head % (path, BODY))
            client.sendall(b"x" * BODY)
        except OSError:
            pass
        try:
            answers.append(client.recv(100))
        except OSError:
            answers.append(b"")


def test_silent_connections_and_large_bodies_keep_no_probe_away_and_cost_no_memory(scheduler: SchedulerProcess) -> None:
    process = psutil.Process(scheduler.pid)
    assert all(map(healthy, ports(scheduler)))
    rest = process.memory_info().rss
    answers: list[bytes] = []
    with ExitStack() as stack:
        for port in ports(scheduler):
            for _ in range(SILENT):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            threads = [threading.Thread(target=send_body, args=(port, path, answers)) for path in PATHS]
            for thread in threads:
                thread.start()
            assert healthy(port)
            for thread in threads:
                thread.join()
            assert healthy(port)
            more = (process.memory_info().rss - rest) / 1e6
            print(f"{more:+.1f} MB with {SILENT} silent connections and {len(PATHS)} bodies of {BODY >> 20} MB")
            assert more < MORE_MB
    assert {answer.split(b" ", 2)[1] for answer in answers if answer} <= {b"404", b"405", b"413"}
    assert "Traceback" not in scheduler.log()


def test_a_length_of_5000_digits_is_refused_without_a_traceback(scheduler: SchedulerProcess) -> None:
    for port in ports(scheduler):
        with socket.create_connection(("127.0.0.1", port), 30) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")
        assert healthy(port)
    scheduler.wait_for("debug_listen: refused 127.0.0.1 GET '/healthz' with 400")
    assert "Traceback" not in scheduler.log()


@pytest.mark.parametrize("amount", ["1e8000000", "1e999999999", "1E-999999999", "9" * 5000 + "Ei"])
def test_a_pod_with_an_absurd_request_is_judged_at_once(scheduler: SchedulerProcess, amount: str) -> None:
    """A power of ten of that size would take seconds, or hours, of the thread that schedules."""
    process, port = psutil.Process(scheduler.pid), scheduler.page_port
    assert all(map(healthy, ports(scheduler)))
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": amount}}}]
    pod = {"metadata": {"name": "a"}, "spec": {"schedulerName": "carico", "containers": containers}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/simulate", json.dumps(pod).encode(), {"Content-Type": "application/json"}
    )
    before = sum(process.cpu_times()[:2])
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        with error:
            status = error.code
    assert status in (200, 400)
    assert sum(process.cpu_times()[:2]) - before < CPU_SECONDS
    assert healthy(port)
    assert "Traceback" not in scheduler.log()
