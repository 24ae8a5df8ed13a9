"""Tests and benchmarks share the package `harness`; they do not import each other and do not change the import path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
FOLDERS = ("tests", "bench", "tools", "carico")
MAY_NOT_IMPORT = {
    "tests": r"tests|bench|tools|(\w+\.)*(test_\w+|conftest)",
    "bench": r"tests|tools",
    "tools": r"tests|bench",
    "carico": r"harness",
}


def found(folder: str, pattern: str) -> list[str]:
    """Where the files of a folder have it."""
    sources = {path: path.read_text() for path in (CHECKOUT / folder).rglob("*.py")}
    here = re.compile(pattern, re.MULTILINE)
    return [f"{path.relative_to(CHECKOUT)}: {hit[0]}" for path, text in sources.items() for hit in here.finditer(text)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_tests_and_benchmarks_import_the_harness_and_not_each_other(folder: str) -> None:
    assert found(folder, rf"^ *(from|import) ({MAY_NOT_IMPORT[folder]})\b.*$") == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_module_changes_where_modules_are_found(folder: str) -> None:
    assert found(folder, r"^.*\bsys\.(path\b.*|modules\[.*\] = .*)$") == []
