"""`python -m bench [NAME]`: list the benchmarks, or run one."""

from __future__ import annotations

import ast
import difflib
import importlib
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent


def benchmarks() -> dict[str, str]:
    """Name → first line of the docstring, of every file here that has run()."""
    found = {}
    for path in sorted(HERE.glob("[a-z]*.py")):
        tree = ast.parse(path.read_text())
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            found[path.stem.replace("_", "-")] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def main(arguments: list[str]) -> int:
    known = benchmarks()
    if not arguments:
        width = max(map(len, known))
        for name, line in known.items():
            print(f"{name:<{width}}  {line}")
        return 0
    name = arguments[0]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        print(f"bench: no benchmark is called {name!r}; did you mean {near[0]!r}?", file=sys.stderr)
        return 2
    figures = importlib.import_module(f"bench.{name.replace('-', '_')}").run()
    print(json.dumps({"name": name, "figures": figures}))
    return 0


if __name__ == "__main__":
    # Matrices are two by two: a thread per core would only slow them down. Must be set before numpy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
