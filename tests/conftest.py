"""Skips tests that this machine cannot run, and ends with a table of what was skipped."""

from __future__ import annotations

import os
from collections import Counter

# Read when gRPC is loaded. Tests start processes that must end with them, which requires fork; gRPC's fork handlers
# write into the child's standard error and may end it.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import pytest
from hypothesis import HealthCheck, settings

from harness import parts
from harness.cluster.fixtures import (  # noqa: F401  (fixtures and a hook for every test)
    any_cluster,
    containerd,
    embedded_cluster,
    node_cluster,
    pytest_collection_finish,
    scale_cluster,
)

IN_CI = os.environ.get("CI") == "true"

# A slow machine must not fail a property, and CI must use the same examples each time.
settings.register_profile("carico", deadline=None, derandomize=IN_CI, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("carico")

skipped: Counter[tuple[str, str]] = Counter()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for part in mark.args:
            why = parts.missing(part)
            if why is None:
                continue
            if IN_CI and part not in parts.MAY_BE_MISSING:
                pytest.fail(f"needs {part}, which is missing under CI=true: {why}", pytrace=False)
            skipped[part, why] += 1
            pytest.skip(f"{part}: {why}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not skipped:
        terminalreporter.write_line("every group of tests could run on this machine")
        return
    terminalreporter.write_sep("-", "groups that this machine could not run")
    for (part, why), count in sorted(skipped.items()):
        terminalreporter.write_line(f"{part:<12} {count:>4} skipped   {why}")
