"""`carico agent` as a user runs it: a real process, its pages, its signals, its memory."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.promtool import complaints
from harness.running import AgentProcess, agent

# s; on a busy machine a process takes a second to end, and and its own timeouts are five or ten seconds
AT_ONCE = 4.5


def test_it_becomes_ready_and_reports_how_many_pods_fit() -> None:
    with agent("--runtime", "none") as process:
        assert process.get("/healthz") == (200, "ok\n")
        process.ready()
        page = process.get("/metrics")[1]
        capacity = re.search(r'^carico_node_capacity_pods{node="node-1"} (\S+)$', page, re.M)
        assert capacity is not None, page
        assert 0 <= float(capacity[1]) <= 1000
        assert re.search(r'^carico_usage_ratio{node="node-1",resource="memory"} 0\.\d+$', page, re.M)


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_page_of_a_running_agent() -> None:
    with agent() as process:
        process.ready()
        page = process.get("/metrics")[1]
    assert complaints(page) == ""


def _works_without_a_scheduler(process: AgentProcess) -> None:
    """It samples, and is not ready: ready means that a scheduler has accepted a report."""
    line = "no scheduler has accepted a report yet\n"
    process.wait_until(lambda: process.get("/readyz") == (503, line), "not ready for this reason alone")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_even_without_responses(number: signal.Signals) -> None:
    with agent("--aggregator", "127.0.0.1:1", "--schedulers", "127.0.0.1:1", "--plaintext") as process:
        _works_without_a_scheduler(process)
        before = time.monotonic()
        assert process.stop(number) == 0
        assert time.monotonic() - before < AT_ONCE
    assert "Traceback" not in process.log()


@pytest.mark.parametrize("runtime", ["containerd", "cri", "auto"])
def test_it_ends_at_once_while_runtime_and_endpoints_hang(tmp_path: Path, runtime: str) -> None:
    with socket.socket(socket.AF_UNIX) as silent, socket.create_server(("127.0.0.1", 0)) as mute:
        silent.bind(str(tmp_path / "s"))
        silent.listen()  # connections succeed, and no response ever comes
        where = f"127.0.0.1:{mute.getsockname()[1]}"
        flags = ("--runtime", runtime, "--containerd-socket", str(tmp_path / "s"), "--cri-socket", str(tmp_path / "s"))
        with agent(*flags, "--aggregator", where, "--schedulers", where, "--plaintext") as process:
            _works_without_a_scheduler(process)
            before = time.monotonic()
            assert process.stop() == 0
            assert time.monotonic() - before < AT_ONCE
    assert "Traceback" not in process.log()


def test_it_warns_that_plaintext_is_readable() -> None:
    with agent("--aggregator", "127.0.0.1:1", "--plaintext") as process:
        process.wait_for("uses plaintext")


def test_without_tls_files_and_without_plaintext_it_does_not_start() -> None:
    done = carico("agent", "--aggregator", "127.0.0.1:1")
    assert done.returncode == 2
    assert "needs tls_ca" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_settings_end_with_one_line_each_and_code_2() -> None:
    done = carico("agent", "--rate-hz", "0", "--cpu", "men")
    assert done.returncode == 2
    assert sorted(done.stderr.splitlines()) == [
        "carico: --cpu: 'men' is not one of mean, utilisation, pressure; did you mean 'mean'?",
        "carico: --rate-hz: '0' is less than 0.1",
    ]


def test_one_blas_thread_on_however_many_cores() -> None:
    with agent("--runtime", "none") as process:
        process.ready()
        status = Path(f"/proc/{process.pid}/status").read_text()
    threads = re.search(r"^Threads:\s+(\d+)$", status, re.M)
    assert threads is not None
    assert int(threads[1]) == 1  # with no gRPC connection there is nothing else to do


def test_what_was_learned_survives_a_restart_and_a_kill(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with agent("--runtime", "none", "--state-file", str(state)) as process:
        process.ready()
        process.stop()
    kept = json.loads(state.read_text())
    assert kept["format"] == 1
    with agent("--runtime", "none", "--state-file", str(state)) as process:
        process.wait_for("restored from")
        process.ready()
        process.stop(signal.SIGKILL)
    assert json.loads(state.read_text()) == kept


def test_a_poisoned_state_file_is_named_and_left_out(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text('{"format": 1, "state": {"cost": NaN}}')
    with agent("--runtime", "none", "--state-file", str(state)) as process:
        process.wait_for(r"state\.json cannot be used")
        process.ready()


def test_a_machine_without_proc_is_not_ready_but_alive_and_says_why(tmp_path: Path) -> None:
    with agent("--runtime", "none", "--proc-root", str(tmp_path)) as process:
        process.wait_for(r"WARNING .*stat")
        assert process.get("/readyz") == (503, "no estimate yet\n")
        assert 'carico_agent_source_success{node="node-1",source="stat"} 0.0' in process.get("/metrics")[1]


def test_the_port_in_use_is_named() -> None:
    with agent("--runtime", "none") as process:
        done = carico("agent", "--listen", f"127.0.0.1:{process.port}")
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{process.port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_agents_run_side_by_side() -> None:
    with agent("--runtime", "none") as one, agent("--runtime", "none") as other:
        assert isinstance(one, AgentProcess)
        assert one.port != other.port
        one.ready()
        other.ready()


def carico(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "carico.cli", *words], capture_output=True, text=True, timeout=60)
