"""Prometheus' own judgement of a page of metrics."""

from __future__ import annotations

import subprocess


def complaints(page: str) -> str:
    """What `promtool check metrics` has against it; empty for nothing."""
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 or done.stdout or done.stderr, f"promtool ended with {done.returncode}"
    return done.stdout + done.stderr
