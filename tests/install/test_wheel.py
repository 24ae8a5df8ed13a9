"""The wheel as a user gets it: installed without an index from a folder of wheels, with its metadata for PyPI."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from harness.cluster import builder
from harness.cluster.runs import CHECKOUT

pytestmark = pytest.mark.slow
PATIENCE = 550.0  # s; while other programs take all of the machine, the demo waits for room


def run(*command: str, cwd: Path = CHECKOUT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def pip(*words: str) -> str:
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *words)


@pytest.fixture(scope="module")
def wheels() -> Path:
    """The locked wheels of the demo, fetched once per machine and version of this Python."""
    locked = CHECKOUT / "requirements" / "demo.txt"
    key = hashlib.sha256(locked.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = builder.cache_folder() / f"wheels-{key}"
    if not folder.exists():
        half = folder.with_suffix(f".{os.getpid()}")
        pip("download", "--quiet", "--require-hashes", "--only-binary", ":all:", "-r", str(locked), "-d", str(half))
        half.rename(folder)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    run("git", "clone", "--quiet", "--shared", str(CHECKOUT), str(sources))
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(sources))
    (made,) = folder.glob("*.whl")
    return made


def test_it_installs_from_a_folder_of_wheels_and_runs_the_demo(wheels: Path, wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    where = ["--no-index", "--find-links", str(wheels), "--find-links", str(wheel.parent)]
    run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *where, "carico[demo]")
    said = run(str(tmp_path / "venv" / "bin" / "carico"), "demo", "--pods", "2", cwd=tmp_path)
    assert "job completion" in said
    assert (tmp_path / "carico-demo.png").stat().st_size > 1000


def test_it_has_the_metadata_that_an_index_shows(wheel: Path) -> None:
    with ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(content.read(name).decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"]
    assert metadata["Keywords"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Operating System :: POSIX :: Linux" in metadata.get_all("Classifier", [])
    assert str(metadata.get_payload()).startswith("# Carico")
