"""What `make` fetches is locked by checksum, and who only runs Carico gets nothing that only developers need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
LOCKED = sorted((CHECKOUT / "requirements").glob("*.txt"))


def packages(name: str) -> set[str]:
    text = (CHECKOUT / "requirements" / f"{name}.txt").read_text()
    return {line.split("==")[0] for line in text.splitlines() if re.match("[a-z]", line)}


def wanted(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;]", line)[0] for line in requirements} - {"carico"}


@pytest.mark.parametrize("file", LOCKED, ids=lambda file: file.stem)
def test_every_package_has_a_version_and_checksums(file: Path) -> None:
    for entry in re.split(r"\n(?=[a-z])", file.read_text().strip()):
        assert re.match(r"[a-z0-9.-]+==[^ ]+( ; [^\\]+)? \\\n    --hash=sha256:", entry), entry[:100]


def test_who_runs_carico_gets_what_it_needs_and_no_more() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = wanted(project["dependencies"]) | wanted(extras["certificates"])
    assert packages("run") == needed | {"typing-extensions", "cffi", "pycparser"}, "which grpcio and cryptography need"
    assert packages("run") | wanted(extras["demo"]) | {"setuptools"} <= packages("demo") <= packages("dev")
    assert wanted(extras["dev"]) <= packages("dev")
    assert not wanted(extras["demo"]) & packages("run")
    assert packages("uv") == {"uv"}


def recorded(script: str, tmp_path: Path, *argv: str) -> list[list[str]]:
    """Runs a script of tools/ with programs that only write down how they were called."""
    log = tmp_path / "log"
    shutil.copytree(CHECKOUT / "requirements", tmp_path / "requirements")
    for file in ("pyproject.toml", "tests/harness/pyproject.toml"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / file, tmp_path / file)
    for name in ("python", "uv"):
        program = tmp_path / ".venv" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\ncat > /dev/null; echo "$@" >> {log}\n')
        program.chmod(0o755)
    command = [str(CHECKOUT / "tools" / script), *argv]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60, stdin=subprocess.DEVNULL, capture_output=True)
    return [line.split() for line in log.read_text().splitlines()]


@pytest.mark.parametrize("call", [("install.sh", "demo"), ("install.sh", "dev"), ("lock.sh",)], ids=" ".join)
def test_nothing_unlocked_is_fetched(call: tuple[str, ...], tmp_path: Path) -> None:
    for words in recorded(call[0], tmp_path, *call[1:]):
        if words[:3] != ["-m", "pip", "install"]:
            continue
        if "-r" in words:  # only what has a checksum, and nothing that would have to be built
            assert {"--require-hashes", "--only-binary", ":all:"} <= set(words)
            assert "--no-binary" not in words
        else:
            assert words[-2:] in (["--editable", "."], ["--editable", "tests/harness"])
            assert {"--no-deps", "--no-build-isolation"} <= set(words)


def test_ci_needs_a_python_that_checks_certificates_strictly(tmp_path: Path) -> None:
    for tool in ("bash", "dirname", "tr", "grep", "sort", "head", "tail", "awk"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    environment = {"PATH": str(tmp_path), "PYENV_ROOT": "/nowhere", "HOME": "/nowhere", "CI": "true"}

    def said() -> str:
        script = CHECKOUT / "tools" / "test-pythons.sh"
        done = subprocess.run([script, "--newest"], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        return done.stderr

    assert said() == "test-pythons: no CPython from 3.11 on is in PATH or pyenv\n"
    for version in ("3.9", "3.12"):
        python = tmp_path / f"python{version}"
        python.write_text(f"#!/bin/sh\necho {version}.1 {python}\n")
        python.chmod(0o755)
    broken = tmp_path / "python3.14"  # a shim of pyenv for a version that is not chosen
    broken.write_text("#!/bin/sh\necho not found >&2; exit 127\n")
    broken.chmod(0o755)
    assert said() == "test-pythons: CI needs a CPython from 3.13 on, in PATH or pyenv; the newest here is 3.12.1\n"
    assert os.access(CHECKOUT / ".ci" / "run", os.X_OK)
    assert "tools/test-pythons.sh --newest" in (CHECKOUT / ".ci" / "run").read_text()
