"""The wheel of container images: complete without the packages that only a laptop needs."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from carico.cli import COMMANDS

CHECKOUT = Path(__file__).parents[2]
LEFT_OUT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["carico"]["not-in-image"]
SOURCES = ("carico", "pyproject.toml", "setup.py", "README.md", "LICENSE")

needing = pytest.mark.parametrize("command", [name for name, command in COMMANDS.items() if command.needs])


def built(folder: Path, **environ: str) -> Path:
    """The wheel that a front end such as pip gets for the sources in `folder`."""
    program = "from setuptools import build_meta; build_meta.build_wheel('wheels')"
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, cwd=folder, env=os.environ | environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "wheels").iterdir()
    return wheel


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel. It is built after the complete one, whose build folder is still there."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    complete = zipfile.ZipFile(built(folder)).namelist()
    assert all(f"{package.replace('.', '/')}/__init__.py" in complete for package in LEFT_OUT)
    shutil.rmtree(folder / "wheels")
    unpacked = tmp_path_factory.mktemp("image")
    zipfile.ZipFile(built(folder, CARICO_WHEEL="image")).extractall(unpacked)
    return unpacked


def python(image: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Without site: it would find the packages of this checkout, which is installed."""
    path = os.pathsep.join([str(image), sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]])
    command = [sys.executable, "-S", *words]
    environ = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=image, env=environ, capture_output=True, text=True, timeout=300)


def modules(image: Path) -> list[str]:
    paths = sorted((image / "carico").rglob("*.py"))
    names = [".".join(path.relative_to(image).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not name.endswith("__main__")]


def files(root: Path) -> set[str]:
    found = (path for path in (root / "carico").rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {str(path.relative_to(root)) for path in found}


def test_the_wheel_has_all_files_but_those_of_the_packages_left_out(image: Path) -> None:
    left_out = tuple(f"{package.replace('.', '/')}/" for package in LEFT_OUT)
    assert files(image) == {name for name in files(CHECKOUT) if not name.startswith(left_out)}


def test_every_module_can_be_imported_but_commands_that_need_a_package_left_out(image: Path) -> None:
    without = {f"carico.commands.{name}" for name, command in COMMANDS.items() if command.needs}
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = python(image, "-c", program, *(name for name in modules(image) if name not in without))
    assert done.returncode == 0, done.stderr


@needing
def test_a_command_that_is_not_there_says_so_in_one_sentence(image: Path, command: str) -> None:
    done = python(image, "-m", "carico.cli", command)
    said = f"carico: `carico {command}` needs {COMMANDS[command].needs}, which container images leave out; "
    assert (done.returncode, done.stdout) == (COMMANDS[command].own_error or 2, "")
    assert done.stderr == f"{said}run it from a full installation\n"


def test_completion_offers_only_commands_that_are_there(image: Path) -> None:
    done = python(image, "-m", "carico.cli", "completion", "fish")
    assert done.returncode == 0, done.stderr
    assert "explain" in done.stdout
    assert "demo" not in done.stdout


def test_commands_and_import_contracts_name_the_packages_left_out() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(CHECKOUT / ".importlinter")
    assert contracts["importlinter:contract:image"]["forbidden_modules"].split() == LEFT_OUT
    assert {command.needs for command in COMMANDS.values()} - {""} <= set(LEFT_OUT)
