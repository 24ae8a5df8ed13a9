"""Tests and benchmarks share the package `harness`; they do not import each other and do not change the import path."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
FOLDERS = ("tests", "bench", "tools", "carico")
# The package name of a folder's own tests would be the folder's: none of them may be imported.
MAY_NOT_IMPORT = {"tests": {"tests", "bench", "tools"}, "bench": {"tests", "tools"}, "tools": {"tests", "bench"}}


def sources(folder: str) -> list[Path]:
    return sorted((CHECKOUT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


@pytest.mark.parametrize("folder", MAY_NOT_IMPORT)
def test_tests_and_benchmarks_do_not_import_each_other(folder: str) -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}: {name}"
        for path in sources(folder)
        for name in imported(path)
        if name.partition(".")[0] in MAY_NOT_IMPORT[folder] or ".test_" in name or "conftest" in name
    ]
    assert found == []


def test_the_harness_is_not_part_of_the_package() -> None:
    found = [path for path in sources("carico") for name in imported(path) if name.partition(".")[0] == "harness"]
    assert found == []


def test_no_module_changes_where_modules_are_found() -> None:
    """`sys.path`, and `sys.modules` outside a monkeypatch."""
    found = []
    for folder in FOLDERS:
        for path in sources(folder):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Attribute(value=ast.Name(id="sys"), attr="path"):
                        found.append(f"{path.relative_to(CHECKOUT)}:{node.lineno}")
                    case ast.Subscript(value=ast.Attribute(value=ast.Name(id="sys"), attr="modules"), ctx=ast.Store()):
                        found.append(f"{path.relative_to(CHECKOUT)}:{node.lineno}")
    assert found == []
