"""Prometheus' check of a page of metrics."""

from __future__ import annotations

import subprocess


def complaints(page: str) -> str:
    """The output of `promtool check metrics`; empty if there are no complaints."""
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 or done.stdout or done.stderr, f"promtool ended with {done.returncode}"
    return done.stdout + done.stderr
