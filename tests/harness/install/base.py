"""A base image from Debian packages: debootstrap in place of an image registry.

It has Python and nothing else that Debian does not require; documentation and package lists are left out, as in the
slim images of registries.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.cluster.errors import ClusterError

SUITE = "bookworm"
PYTHON = "3.11"  # of that suite
PACKAGES = ("python3", "ca-certificates")
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/lib/apt/lists", "var/cache/apt", "var/log")
SECONDS = 90


def base_file(folder: Path, say: Callable[[str], None]) -> Path:
    """The root file system as a tar file in `folder`, made there unless it is there."""
    key = hashlib.sha256(repr((SUITE, PACKAGES, LEFT_OUT)).encode()).hexdigest()[:16]
    file = folder / f"base-{key}.tar"
    if not file.exists():
        say(f"making a base image from Debian packages, about {SECONDS} s, once per machine")
        with tempfile.TemporaryDirectory(dir=folder) as place:
            _make(Path(place), file)
    return file


def _make(place: Path, file: Path) -> None:
    root = place / "root"
    include = f"--include={','.join(PACKAGES)}"
    _run(["debootstrap", "--variant=minbase", include, SUITE, str(root), _mirror()], "base image")
    for name in LEFT_OUT:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True, exist_ok=True)
    _run(["tar", "-C", str(root), "-cf", str(place / "base.tar"), "."], "base image")
    (place / "base.tar").rename(file)


def _mirror() -> str:
    """Where this machine gets its own packages of the suite."""
    listed = _run(["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"], "mirror")
    for release, address in (line.split() for line in listed.splitlines()):
        if release == SUITE:
            return address
    raise ClusterError(f"the package sources of this machine have no Debian {SUITE}, which the base image is made of")


def _run(command: list[str], what: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise ClusterError(f"{what}: no {command[0]} on PATH (Debian package: {command[0]})") from None
    if done.returncode != 0:
        raise ClusterError(f"{what}: {' '.join(command[:2])} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout
