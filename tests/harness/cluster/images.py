"""Pause and work image, built without tools: there is no registry in a sealed cluster.

Both are one layer, static busybox with a link per applet, and differ only in their command. The result is an OCI image
layout in one tar file, for `ctr images import`.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

from .errors import ClusterError

PAUSE = "carico.test/pause:1"
BUSYBOX = "carico.test/busybox:1"
STARTS = {PAUSE: ["/bin/busybox", "sleep", "2147483647"], BUSYBOX: ["/bin/sh"]}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
OCI = "application/vnd.oci.image"


def write_layout(file: Path) -> None:
    """Write both images as an OCI layout."""
    layer = _layer()
    blobs = {_digest(layer): layer}
    manifests = [_add_image(blobs, name, start, _digest(layer)) for name, start in STARTS.items()]
    index = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": manifests}
    with tarfile.open(file, "w") as tar:
        _add_file(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add_file(tar, "index.json", json.dumps(index).encode())
        for digest, blob in blobs.items():
            _add_file(tar, f"blobs/sha256/{digest.removeprefix('sha256:')}", blob)


def _add_image(blobs: dict[str, bytes], name: str, start: list[str], layer: str) -> dict[str, object]:
    """Add an image's config and manifest to the blobs; returns its entry in the index."""
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": start},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": _add_blob(blobs, f"{OCI}.config.v1+json", json.dumps(config).encode()),
        "layers": [_describe(f"{OCI}.layer.v1.tar", blobs[layer])],
    }
    entry = _add_blob(blobs, f"{OCI}.manifest.v1+json", json.dumps(manifest).encode())
    return entry | {"annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}}


def _layer() -> bytes:
    busybox = shutil.which("busybox")
    if busybox is None:
        raise ClusterError("no busybox on PATH, which the pods' image is made of (Debian package: busybox-static)")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777)):
            _add_folder(tar, folder, mode)
        _add_file(tar, "bin/busybox", _static(Path(busybox)), 0o755)
        _add_file(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n")
        for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if applet != "busybox":
                _add_link(tar, f"bin/{applet}", "busybox")
    return content.getvalue()


def _static(program: Path) -> bytes:
    content = program.read_bytes()
    if b"/ld-linux" in content or b"/ld-musl" in content:
        raise ClusterError(f"{program} is not statically linked (Debian package: busybox-static)")
    return content


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _describe(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _add_blob(blobs: dict[str, bytes], media_type: str, blob: bytes) -> dict[str, object]:
    blobs[_digest(blob)] = blob
    return _describe(media_type, blob)


def _add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _add_folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)
