"""cgroup v2 with all controllers, for real: a User-Mode Linux kernel runs pods, and the agent's own code reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.node import uml, uml_pods

pytestmark = [pytest.mark.slow, pytest.mark.needs("root", "uml")]

MIB = 2**20
UID, DEMAND, USE, EXACT = 0, 4, 5, 6  # fields of a MeasuredPod


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return uml.run(Path(uml_pods.__file__), tmp_path_factory.mktemp("uml"))


def test_the_working_set_holds_what_is_touched_and_no_cache_of_files(told: Any) -> None:
    memory = told["memory"]
    touched = memory["touched"]["memory_working_set"] - memory["empty"]["memory_working_set"]
    assert 48 * MIB <= touched <= 60 * MIB
    assert memory["current"] - memory["with_cache"]["memory_working_set"] >= 30 * MIB, "the file that was read"
    assert memory["with_cache"]["memory_working_set"] - memory["touched"]["memory_working_set"] <= 8 * MIB
    assert memory["given_back"]["memory_working_set"] <= 10 * MIB


def test_the_kernels_peak_counts_the_cache(told: Any) -> None:
    """Which is why the highest working set is kept, and not memory.peak."""
    if told["memory"]["peak"] is None:
        pytest.skip(f"Linux {told['kernel']} has no memory.peak")
    assert told["memory"]["peak"] >= told["memory"]["with_cache"]["memory_working_set"] + 30 * MIB


def test_a_group_that_was_removed_while_its_files_were_open(told: Any) -> None:
    assert told["memory"]["gone"] is None


def test_a_pod_that_the_kernel_kills_for_its_memory(told: Any) -> None:
    oom = told["oom"]
    assert oom["status"] == -9
    assert oom["events"]["oom_kill"] >= 1
    assert oom["after"]["memory_limit"] == 40 * MIB
    assert oom["after"]["memory_working_set"] <= 40 * MIB
    assert oom["after"]["usage_seconds"] > 0


@pytest.mark.parametrize("limited", ["limited", "container"])
def test_throttled_time_by_a_limit_of_the_pod_or_of_its_container(told: Any, limited: str) -> None:
    pod = told[limited]
    assert pod["before"]["throttled_seconds"] == 0
    assert pod["after"]["throttled_seconds"] >= 1.0
    assert pod["after"]["cpu_limit_cores"] == (0.2 if limited == "limited" else None)
    assert pod["throttled"] > 0.3, "taken off the node's pressure"
    # A container may use a part of a period more before it is held back, and the clock of a busy host jumps.
    assert pod["measured"][DEMAND][0] <= (0.2 if limited == "limited" else 0.35)
    assert pod["measured"][EXACT]


def test_demand_of_busy_processes_past_saturation(told: Any) -> None:
    """Three of them on one processor, on a kernel without PSI."""
    busy = told["busy"]
    assert busy["measured"][DEMAND][0] == pytest.approx(busy["wanted"], rel=0.25)
    assert busy["measured"][USE][0] <= 1.1
    assert not busy["measured"][EXACT]


def test_a_process_measures_itself_against_the_limits_above_its_own_group(told: Any) -> None:
    """Half a processor and 160 MiB; the counters around both readings are the oracle, over 100 s as told."""
    own = told["own_limits"]
    assert (own["cores"], own["bytes"]) == (0.5, 160 * MIB)
    before, first, last, after = own["counted"]
    for name, i in (("util", 0), ("psi", 1)):
        assert (last[i] - first[i]) / 50 - 1e-9 <= own[name] <= (after[i] - before[i]) / 50 + 1e-9
        assert own[name] >= 0.01
    assert 32 / 160 <= own["mem"] <= 0.9
