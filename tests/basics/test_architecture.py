"""docs/architecture.md and CONTRIBUTING.md name files and functions that exist, and the recipes can be followed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
MOST_STEPS = 25  # fewer than the 26 that there were
MOST_FILES = 3
FILE = re.compile(r"`((?:carico|protos|tests|tools)/[\w/]+\.\w+)`")


def section(title: str) -> str:
    return ARCHITECTURE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def defined(path: Path) -> set[str]:
    """Functions and classes of a module, and `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
            methods = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_every_name_in_the_walk_exists_and_it_is_short() -> None:
    steps = re.findall(r"^\d+\. (.*)$", section("From a sample to a binding"), re.MULTILINE)
    assert 10 < len(steps) <= MOST_STEPS
    missing = []
    for step in steps:
        names: set[str] = set()
        for text in re.findall(r"`([^`]+)`", step):
            if "/" in text:
                names = defined(ROOT / text)
            elif text not in names:
                missing.append(text)
    assert missing == []


@pytest.mark.parametrize("document", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_file_that_is_named_exists(document: str) -> None:
    named = set(FILE.findall((ROOT / document).read_text()))
    invented = {name for name in named if "/my_" in name or "/NAME" in name}
    assert [name for name in sorted(named - invented) if not (ROOT / name).exists()] == []


def test_frequent_changes_touch_three_files_at_most() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", section("Ten changes"), re.MULTILINE)[2:]
    assert len(rows) == 10
    files = {change.strip(): re.findall(r"`[\w/.]+\.py`", touched) for change, touched in rows}
    for change in ("a telemetry source", "a plugin, with or without settings", "a command"):
        assert len(files[change]) <= MOST_FILES, change
