"""Every module can be imported by the Python that runs the tests, without a warning of ours."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import carico


def modules() -> list[str]:
    return [module.name for module in pkgutil.walk_packages(carico.__path__, "carico.")]


def test_every_module_can_be_imported() -> None:
    names = [name for name in modules() if not name.endswith("__main__")]
    assert len(names) > 200
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    # What is deprecated in this Python is an error in our modules; those of other packages may warn of their own.
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning:google", "-c", program, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
