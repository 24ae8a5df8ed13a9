"""The container runtime of a sealed cluster: containerd 2 from our build, or the machine's own 1.x.

Inside the namespaces its socket is where every distribution has it. The folder of that socket is in the run's folder,
which the host sees too: a client outside can connect to it. All its mounts are private to the namespaces.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from .daemons import Daemons
from .errors import ClusterError
from .images import PAUSE, write_layout
from .runs import Run
from .sealed import command

POD_NETWORK = "10.244.0.0/16"
SOCKET = "containerd.sock"  # in the run's folder
STATE = Path("/run/containerd")
CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")

# Lowering oom_score_adj needs CAP_SYS_RESOURCE, which root in a sandbox may lack: runc would fail.
VERSION_3 = """
version = 3
root = "{folder}/containerd"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{folder}/cni"
"""
VERSION_2 = """
version = 2
root = "{folder}/containerd"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{folder}/cni"
"""
CONFIGURATIONS = {"2": VERSION_3, "1.6": VERSION_2}


def start(run: Run, daemons: Daemons, version: str, binaries: dict[str, str]) -> None:
    """Start containerd, import the images and wait until its CRI has a network."""
    folder, socket = run.folder, STATE / SOCKET
    _share_socket(folder)
    configuration = CONFIGURATIONS[version].format(
        folder=folder, socket=socket, state=STATE, pause=PAUSE, cni=cni_folder()
    )
    (folder / "containerd.toml").write_text(configuration)
    _write_network(folder / "cni")
    # containerd looks for its shim on PATH: the one next to the binary, of the same version.
    path = f"{Path(binaries['containerd']).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    daemons.start("containerd", [binaries["containerd"], "--config", str(folder / "containerd.toml")], {"PATH": path})
    daemons.wait_for("containerd", lambda: _answers(socket, binaries), log="containerd")
    write_layout(folder / "images.tar")
    command(binaries["ctr"], "-a", str(socket), "-n", "k8s.io", "images", "import", str(folder / "images.tar"))
    (folder / "images.tar").unlink()


def system_binaries() -> dict[str, str]:
    """The machine's own containerd, for version 1.6."""
    found = {name: shutil.which(name) for name in ("containerd", "containerd-shim-runc-v2", "ctr")}
    if absent := [name for name, path in found.items() if path is None]:
        raise ClusterError(f"no {', '.join(absent)} on PATH (Debian package: containerd)")
    return {name: str(path) for name, path in found.items()}


def cni_folder() -> str:
    """The folder of the machine's CNI plugins."""
    for folder in CNI_FOLDERS:
        if (Path(folder) / "bridge").exists():
            return folder
    raise ClusterError(f"no CNI plugins in {', '.join(CNI_FOLDERS)} (Debian package: containernetworking-plugins)")


def _share_socket(folder: Path) -> None:
    """containerd's usual folder, with the run's own behind it."""
    shared = folder / "run-containerd"
    for each in (shared, STATE):
        each.mkdir(mode=0o711)
    command("mount", "--bind", str(shared), str(STATE))
    (folder / SOCKET).symlink_to(shared / SOCKET)


def _answers(socket: Path, binaries: dict[str, str]) -> bool:
    if not socket.exists():
        return False
    try:
        return " cri" in command(binaries["ctr"], "-a", str(socket), "plugins", "ls")
    except ClusterError:
        return False


def _write_network(folder: Path) -> None:
    bridge = {
        "type": "bridge",
        "bridge": "pods0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_NETWORK}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": "/run/carico/addresses",
        },
    }
    folder.mkdir()
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
    (folder / "10-pods.conflist").write_text(json.dumps(network, indent=1))
