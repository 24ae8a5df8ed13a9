"""The tree explains itself: every folder's docstring names its modules, and no public class name means two things."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import carico
import harness

ROOT = Path(carico.__file__).parent
HARNESS = Path(harness.__file__).parent
GENERATED = {ROOT / "wire" / "v1", ROOT / "runtime" / "api", ROOT / "kube" / "messages"}


def packages() -> list[Path]:
    found = sorted(path.parent for root in (ROOT, HARNESS) for path in root.rglob("__init__.py"))
    return [folder for folder in found if folder not in GENERATED]


@pytest.mark.parametrize("folder", packages(), ids=lambda folder: str(folder.relative_to(ROOT.parent)))
def test_the_docstring_of_a_folder_names_every_module(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    modules |= {path.parent.name for path in folder.glob("*/__init__.py")}
    named = set(re.findall(r"\w+", text))
    assert not modules - named, f"{folder}/__init__.py does not say what these are for"


def test_a_file_that_a_text_names_exists() -> None:
    """In docstrings and comments: `joint.py`, or with folders, beside the file that names it or from a folder above."""
    missing = []
    for path in sorted(ROOT.rglob("*.py")):
        if path.parent in GENERATED:
            continue
        for name in re.findall(r"(?<![\w./])(?:[a-z_]\w*/)*[a-z_]\w*\.py\b", path.read_text()):
            if not any((folder / name).exists() for folder in path.parents if folder.is_relative_to(ROOT.parent)):
                missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []


def test_no_public_class_name_has_two_meanings() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        if path.parent in GENERATED:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
