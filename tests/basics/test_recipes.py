"""The recipes of CONTRIBUTING.md, followed in a scratch copy of the package: the named files are all that it takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SOURCE = """
from pathlib import Path
from carico.telemetry.procfs import KernelFile
from carico.telemetry.source import clamped, counter


class MySubject:
    name = "my_subject"

    def __init__(self, proc: Path) -> None:
        self._file = KernelFile(proc / "my_subject", size=64)
        self.fetch = self._file.read

    def usage(self, fetched: bytes, now: float) -> float | None:
        return clamped(counter(fetched.strip(), "my subject") / 100)
"""
SAMPLE = """
from pathlib import Path
from dataclasses import replace
from carico.settings import AgentSettings
from carico.telemetry.sampler import Sampler
settings = AgentSettings(proc_root=Path("proc"), dimensions=("cpu", "my_subject"), own_limits=False)
sampler = Sampler(settings)
for now in (1.0, 2.0):
    sample = sampler.sample(sampler.fetch(), now)
print("my_subject", sampler.raw["my_subject"])
"""
COMMAND = '''"""`carico my-command`: greets."""
import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="you")


def run(args: argparse.Namespace) -> int:
    print(f"hello {args.name}")
    return 0
'''
PLUGIN = """
from dataclasses import dataclass
import numpy as np
from carico.config import setting
from carico.scheduler.framework.contract import Cycle, Filter, Reuse, Verdict
from carico.scheduler.plugins.registry import FactoryWithArgs


@dataclass(frozen=True)
class MyArgs:
    longest_name: int = setting(3, "nodes with longer names are rejected", least=1)


class MyPlugin(Filter):
    name = "MyPlugin"
    interests = ()
    reuse = Reuse.NODE

    def __init__(self, args: MyArgs) -> None:
        self._args = args

    def filter(self, cycle: Cycle, rows: object) -> Verdict:
        chosen = cycle.snapshot.all_rows() if rows is None else rows
        names = [cycle.snapshot.name(int(row)) for row in chosen]
        return Verdict.refuse(np.array([len(n) > self._args.longest_name for n in names], dtype=np.bool_), "long name")


make = FactoryWithArgs(MyArgs, lambda _, args: MyPlugin(args))
"""
USE_PLUGIN = """
from carico.scheduler.assembly import assemble
from carico.scheduler.framework.contract import Cycle
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, check_plugin, make_node, make_pod
from my_package import my_module
check_plugin(my_module.make, seeds=range(1))
chosen = {"carico": {"enable": ["MyPlugin"], "disable": ["Capacity"], "args": {"MyPlugin": {"longest_name": 5}}}}
parts = assemble(SchedulerSettings(profiles=chosen), ManualClock(), None)
for name in ("short", "longer-than-that"):
    parts.cluster.node_changed(None, make_node(name))
found = parts.profiles["carico"].feasible.run(Cycle(parts.snapshot.templates.info(make_pod("p")), parts.snapshot))
print([parts.snapshot.name(int(row)) for row in found.rows], found.message())
"""
USE_METRIC = """
from prometheus_client import generate_latest
from carico.scheduler.assembly import assemble
from carico.settings import SchedulerSettings
from carico.testing import ManualClock
parts = assemble(SchedulerSettings(), ManualClock(), None)
parts.metrics.mine.inc()
print(generate_latest(parts.registry).decode())
"""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "carico", tmp_path / "carico", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, f"{before!r} in {path}"
    path.write_text(text.replace(before, after))


def python(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_telemetry_source(scratch: Path) -> None:
    (scratch / "carico/telemetry/my_subject.py").write_text(SOURCE)
    edit(scratch / "carico/settings.py", '"disk", "network")\n', '"disk", "network", "my_subject")\n')
    sampler = scratch / "carico/telemetry/sampler.py"
    case = '            case "my_subject":\n                return {dimension: MySubject(proc)}\n'
    edit(sampler, '            case "disk":\n', f'{case}            case "disk":\n')
    edit(
        sampler,
        "from carico.telemetry.netdev import",
        "from carico.telemetry.my_subject import MySubject\nfrom carico.telemetry.netdev import",
    )
    proc = scratch / "proc"
    shutil.copytree(ROOT / "tests/fixtures/no-psi", scratch / "tree")
    proc.symlink_to(next(scratch.glob("tree/**/stat")).parent)
    (proc / "my_subject").write_text("37\n")
    assert "0.37" in python(scratch, "-c", SAMPLE)


def test_a_command(scratch: Path) -> None:
    (scratch / "carico/commands/my_command.py").write_text(COMMAND)
    edit(
        scratch / "carico/cli.py",
        "COMMANDS: dict[str, Command] = {\n",
        'COMMANDS: dict[str, Command] = {\n    "my-command": Command("greet", TRY),\n',
    )
    assert python(scratch, "-m", "carico.cli", "my-command", "--name", "them") == "hello them\n"
    assert "my-command" in python(scratch, "-m", "carico.cli", "--help")


def test_a_metric(scratch: Path) -> None:
    edit(
        scratch / "carico/scheduler/metrics.py",
        "        self.plugin_errors = counter(\n",
        '        self.mine = counter("carico_scheduler_mine", "An example.")\n        self.plugin_errors = counter(\n',
    )
    assert "carico_scheduler_mine_total 1.0" in python(scratch, "-c", USE_METRIC)


def test_a_plugin_with_settings_in_a_package_of_its_own(tmp_path: Path) -> None:
    """Installed as pip does it: a package, and its metadata with the entry point."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package/__init__.py").touch()
    (tmp_path / "my_package/my_module.py").write_text(PLUGIN)
    metadata = tmp_path / "my_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[carico.scheduler.plugins]\nMyPlugin = my_package.my_module:make\n")
    (tmp_path / "carico").symlink_to(ROOT / "carico")
    assert python(tmp_path, "-c", USE_PLUGIN).startswith("['short']")
