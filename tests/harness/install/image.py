"""Carico's image, built from this checkout's Dockerfile by buildah and cached like the Go binaries.

Cache: `<cache>/image/carico-<key>.tar`, an OCI archive; the key is a checksum of everything that goes into it. Storage
and base image of the build are kept beside it.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from harness.cluster import builder
from harness.cluster.errors import ClusterError
from harness.cluster.runs import CHECKOUT

from . import base

NAME = "carico.test/carico:dev"
BASE_NAME = "localhost/carico-base"
INPUTS = ("Dockerfile", ".dockerignore", "pyproject.toml", "setup.py", "README.md", "LICENSE", "requirements/run.txt")
TOOLS = ("tools/image.sh", "tools/image-wheels.sh", "tools/requirements_for.py", "tools/sbom.py")
KEPT = 3  # images of earlier sources
SECONDS = 40


def image_file(say: Callable[[str], None] = builder.say) -> Path:
    """The image of this checkout as an OCI archive, built first if the cache lacks it."""
    folder = builder.cache_folder() / "image"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"carico-{key()}.tar"
    with _only_builder(folder):
        if not file.exists():
            base_tar = base.base_file(folder, say)
            say(f"building the image, about {SECONDS} s")
            _build(folder, base_tar, file)
            _prune(folder, file)
        file.touch()
    return file


def key() -> str:
    """Checksum of all that goes into the image."""
    left_out = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["carico"]["not-in-image"]
    folders = tuple(f"{name.replace('.', '/')}/" for name in left_out)
    sources = (path for path in (CHECKOUT / "carico").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    names = sorted(str(path.relative_to(CHECKOUT)) for path in sources)
    total = hashlib.sha256(Path(base.__file__).read_bytes())
    for name in (*INPUTS, *TOOLS, *(name for name in names if not name.startswith(folders))):
        total.update(f"{name}\0".encode() + hashlib.sha256((CHECKOUT / name).read_bytes()).digest())
    return total.hexdigest()[:16]


def sizes(file: Path) -> dict[str, float]:
    """MB of the image unpacked: whole, and beyond the base, which is its first layer."""
    with tarfile.open(file) as tar:

        def blob(described: dict[str, Any]) -> IO[bytes]:
            found = tar.extractfile(f"blobs/{described['digest'].replace(':', '/')}")
            assert found is not None
            return found

        index = tar.extractfile("index.json")
        assert index is not None
        manifest = json.load(blob(json.load(index)["manifests"][0]))
        layers = [_unpacked(blob(layer)) for layer in manifest["layers"]]
    return {"image_mb": sum(layers) / 1e6, "image_own_mb": sum(layers[1:]) / 1e6}


def _unpacked(layer: IO[bytes]) -> int:
    with gzip.open(layer) as content:
        return sum(len(part) for part in iter(lambda: content.read(1 << 20), b""))


class Buildah:
    """buildah with its storage in the cache folder: nothing of the user's own is read or written."""

    def __init__(self, folder: Path) -> None:
        self._where = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        self._policy = folder / "policy.json"
        self._policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        # chroot and vfs work in a container without further privileges too.
        self.environment = os.environ | {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    @property
    def build_flags(self) -> str:
        """For tools/image.sh: these flags may also follow the command's name."""
        return " ".join([*self._where, "--pull-never", "--signature-policy", str(self._policy)])

    def __call__(self, command: str, *argv: str, policy: bool = True) -> str:
        flags = ["--signature-policy", str(self._policy)] if policy else []
        return _run(["buildah", *self._where, command, *flags, *argv], self.environment)


def _build(folder: Path, base_tar: Path, file: Path) -> None:
    buildah = Buildah(folder)
    recipe = f"{BASE_NAME}:{base_tar.stem}"
    if not buildah("images", "--quiet", "--filter", f"reference={recipe}", policy=False).strip():
        (folder / "Dockerfile.base").write_text(f"FROM scratch\nADD {base_tar.name} /\n")
        buildah("build", "--quiet", "-t", recipe, "-f", str(folder / "Dockerfile.base"), str(folder))
    name = f"localhost/{file.stem}"
    settings = {"IMAGE": name, "BASE": recipe, "BASE_PYTHON": base.PYTHON, "BUILD_FLAGS": buildah.build_flags}
    _run([str(CHECKOUT / "tools" / "image.sh")], buildah.environment | settings)
    half = file.with_suffix(".half")
    half.unlink(missing_ok=True)
    buildah("push", "--quiet", name, f"oci-archive:{half}:{NAME}")
    half.rename(file)


def _prune(folder: Path, current: Path) -> None:
    """An image for each change of the sources would fill the disk."""
    by_use = sorted(folder.glob("carico-*.tar"), key=lambda path: path.stat().st_mtime)
    buildah = Buildah(folder)
    for old in [path for path in by_use if path != current][:-KEPT]:
        old.unlink()
        buildah("rmi", f"localhost/{old.stem}", policy=False)


def _run(command: list[str], environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    except FileNotFoundError:
        raise ClusterError(f"no {command[0]} on PATH (Debian package: {command[0]})") from None
    if done.returncode != 0:
        raise ClusterError(f"building the image: {(done.stderr or done.stdout).strip()[-1500:]}")
    return done.stdout


@contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    if shutil.disk_usage(folder).free < 2e9:
        raise ClusterError(f"{folder} has less than 2 GB free, which building the image needs: {builder.CHOOSE}")
    with open(folder / "build.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
