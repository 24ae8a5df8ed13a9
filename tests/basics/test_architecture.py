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


SPEAK_GRPC = ("wire/", "runtime/", "embedded/node/", "embedded/simulated/")
USE_PROTOBUF = (*SPEAK_GRPC, "kube/")
BUILD_PATHS = ("kube/", "embedded/apiserver/")


def package() -> dict[str, ast.Module]:
    base = ROOT / "carico"
    return {path.relative_to(base).as_posix(): ast.parse(path.read_text()) for path in base.rglob("*.py")}


def imported(module: ast.Module) -> set[str]:
    """The first names of what a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_only_wire_runtime_and_nodes_of_the_embedded_cluster_use_grpc() -> None:
    modules = {path: imported(module) for path, module in package().items()}
    assert [p for p, names in modules.items() if "grpc" in names and not p.startswith(SPEAK_GRPC)] == []
    assert [p for p, names in modules.items() if "google" in names and not p.startswith(USE_PROTOBUF)] == []


def test_only_kube_builds_paths_of_the_api() -> None:
    found = set()
    for path, module in package().items():
        documented = {id(text) for node in ast.walk(module) if (text := _docstring(node)) is not None}
        texts = (node for node in ast.walk(module) if isinstance(node, ast.Constant) and id(node) not in documented)
        if any(isinstance(text.value, str) and re.match(r"/apis?/", text.value) for text in texts):
            found.add(path)
    assert [path for path in sorted(found) if not path.startswith(BUILD_PATHS)] == []


def _docstring(node: ast.AST) -> ast.Constant | None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
        return None
    first = node.body[0]
    return first.value if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None
