"""The cluster's binaries, from Go modules at pinned versions, built once per machine.

Cache: `<cache>/tools/<module>-<key>/<binary>` with `<binary>.sha256` beside it; the key is a checksum over go.mod,
go.sum and the build flags. A binary is built next to its final path and renamed, its checksum is written last and
verified on every use: an incomplete or changed binary is built again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from . import gotool
from .binaries import FLAGS, MODULES, TOOLS, Tool
from .daemons import die_with_parent
from .errors import ClusterError
from .progress import Line, spoken

CHOOSE = "free some space, or name another folder in CARICO_CACHE"


def cache_folder() -> Path:
    """`$CARICO_CACHE`, or `carico` in the user's cache folder: outside the checkout, shared by all checkouts."""
    if chosen := os.environ.get("CARICO_CACHE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carico"


def say(line: str) -> None:
    """A line of progress for the user."""
    print(line, file=sys.stderr, flush=True)


def build(names: Iterable[str], cache: Path | None = None, say: Callable[[str], None] = say) -> dict[str, str]:
    """Paths of the named binaries, built first if the cache lacks them."""
    cache = cache or cache_folder()
    tools = [TOOLS[name] for name in names]
    with _full_disk_is_one_line(cache):
        if missing := _missing(tools, cache, lambda _: None):
            cache.mkdir(parents=True, exist_ok=True)
            with _only_builder(cache, say):
                _build_all(_missing(missing, cache, say), cache, say)
    return {tool.name: str(path_of(tool, cache)) for tool in tools}


def path_of(tool: Tool, cache: Path) -> Path:
    return cache / "tools" / f"{tool.module}-{_key(tool)}" / tool.name


def _key(tool: Tool) -> str:
    folder = MODULES / tool.module
    modules = (folder / "go.mod").read_bytes() + (folder / "go.sum").read_bytes()
    return hashlib.sha256(modules + repr((FLAGS, tool.flags)).encode()).hexdigest()[:16]


def _missing(tools: list[Tool], cache: Path, say: Callable[[str], None]) -> list[Tool]:
    """Those that are not in the cache, or not as they were built. Hashing releases the GIL, so threads help."""
    with ThreadPoolExecutor() as pool:
        fine = pool.map(lambda tool: _is_fine(path_of(tool, cache), say), tools)
        return [tool for tool, is_fine in zip(tools, fine, strict=True) if not is_fine]


def _is_fine(binary: Path, say: Callable[[str], None]) -> bool:
    try:
        recorded = binary.with_name(f"{binary.name}.sha256").read_text().split()[0]
    except (OSError, IndexError):
        return False
    if binary.exists() and _sha256(binary) == recorded:
        return True
    say(f"{binary} is not as it was built (its checksum differs): building it again")
    return False


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _build_all(tools: list[Tool], cache: Path, say: Callable[[str], None]) -> None:
    if not tools:
        return
    _check_space(tools, cache)
    go = gotool.find(cache, say)
    seconds = sum(tool.seconds for tool in tools)
    say(f"building {len(tools)} binaries into {cache}: up to about {spoken(seconds)} on two cores, once per machine")
    for number, tool in enumerate(tools, 1):
        _build_one(go, tool, cache, Line(f"[{number}/{len(tools)}] {tool.name}", tool.seconds, say))


def _check_space(tools: list[Tool], cache: Path) -> None:
    needed = sum(tool.megabytes for tool in tools)
    free = shutil.disk_usage(cache).free // 1_000_000
    if free < needed:
        raise ClusterError(f"{cache} has {free} MB free, the binaries need {needed} MB: {CHOOSE}")


def _build_one(go: str, tool: Tool, cache: Path, line: Line) -> None:
    goal = path_of(tool, cache)
    goal.parent.mkdir(parents=True, exist_ok=True)
    half = goal.with_name(f"{goal.name}.half")
    command = [go, "build", *FLAGS, *tool.flags, "-o", str(half), tool.package]
    environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOROOT": "", "GOWORK": "off"}
    folder = MODULES / tool.module
    child = subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    )
    try:
        complaint = line.watch(child)
    except BaseException:
        child.kill()
        child.wait()
        raise
    if child.returncode != 0:
        half.unlink(missing_ok=True)
        _fail(tool, complaint, cache)
    (goal.with_name(f"{goal.name}.sha256")).unlink(missing_ok=True)
    half.rename(goal)
    checksum = goal.with_name(f"{goal.name}.sha256.half")
    checksum.write_text(f"{_sha256(goal)}  {goal.name}\n")
    checksum.rename(goal.with_name(f"{goal.name}.sha256"))


def _fail(tool: Tool, complaint: str, cache: Path) -> None:
    if "no space left on device" in complaint.lower():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(cache))
    lines = [text for text in complaint.strip().splitlines() if text] or ["go build gave no reason"]
    raise ClusterError(f"building {tool.name} failed: {lines[-1]}")


@contextmanager
def _only_builder(cache: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Two builders would do the same work twice: the second waits and then finds it done."""
    with open(cache / "build.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another build into {cache} is running: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _full_disk_is_one_line(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            where = error.filename or cache
            raise ClusterError(f"the disk is full: {where}; {CHOOSE}") from error
        raise ClusterError(f"the cache folder {cache} cannot be used: {error.strerror}; {CHOOSE}") from error
