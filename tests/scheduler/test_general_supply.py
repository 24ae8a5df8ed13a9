"""Nothing outside plugins/ depends on which plugin measures what nodes have left."""

from __future__ import annotations

import ast
from pathlib import Path

import carico.scheduler

ROOT = Path(carico.scheduler.__file__).parent
RELEASE_RULE = "cycle/profile_settings.py"  # reads an old setting of this plugin by its old name


def test_only_plugins_import_or_name_the_plugin_capacity() -> None:
    named = set()
    for path in ROOT.rglob("*.py"):
        file = path.relative_to(ROOT).as_posix()
        if file.startswith("plugins/"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            imported = isinstance(node, ast.ImportFrom) and node.module == "carico.scheduler.plugins.capacity"
            if imported or (isinstance(node, ast.Constant) and node.value == "Capacity"):
                named.add(file)
    assert named == {RELEASE_RULE}
