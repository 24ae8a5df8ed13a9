"""`make deploy`: builds the image, imports it into the real node of `make cluster KUBELET=1` and applies the manifests.

The manifests are applied as they are in the checkout, but for the name of the image.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.cluster import binaries, builder, runs, sealed
from harness.cluster.containerd import SOCKET, STATE
from harness.cluster.errors import WRONG_INPUT, ClusterError
from harness.cluster.runs import CHECKOUT, Run

from . import image

NAMESPACE = "carico-system"
OVERLAYS = CHECKOUT / "install" / "overlays"
PATIENCE = 180.0  # s until all pods are Ready; on an idle machine it takes 20


class Installed:
    """Carico on a cluster with a real node."""

    def __init__(self, run: Run, say: Callable[[str], None] = builder.say) -> None:
        self._run = run
        self._say = say
        built = builder.build([*binaries.CONTROL_PLANE, *binaries.CONTAINERD], say=say)
        self._kubectl, self._ctr = built["kubectl"], built["ctr"]

    def import_image(self, file: Path) -> None:
        pid = runs.init_pid(self._run)
        if pid is None:
            raise ClusterError(f"cluster {self._run.id} has no real node, or has ended")
        ctr = [self._ctr, "-a", str(STATE / SOCKET), "-n", "k8s.io", "images", "import", str(file)]
        _run(sealed.enter(pid, ctr), environment=os.environ | self._run.environment)

    def kubectl(self, *argv: str, stdin: str | None = None) -> str:
        return _run([self._kubectl, f"--kubeconfig={self._run.folder / 'kubeconfig'}", *argv], stdin)

    def manifests(self, overlay: str = "default") -> str:
        """What an overlay renders to, with the name of the image that was imported."""
        return with_image(_run([self._kubectl, "kustomize", str(overlay_folder(overlay))]), image.NAME)

    def apply(self, overlay: str = "default") -> None:
        self.kubectl("apply", "-f", "-", stdin=self.manifests(overlay))

    def delete(self, overlay: str = "default") -> None:
        self.kubectl("delete", "--ignore-not-found", "--wait", "-f", "-", stdin=self.manifests(overlay))

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
        return found

    def wait_until_ready(self, seconds: float = PATIENCE) -> None:
        """All pods of the DaemonSet and the Deployments, as many as they want."""
        deadline = time.monotonic() + seconds
        while (missing := self._not_ready()) is not None:
            if time.monotonic() > deadline:
                raise ClusterError(f"not ready after {seconds:.0f} s: {missing}\n{self.state()}")
            time.sleep(0.2)

    def _not_ready(self) -> str | None:
        found = json.loads(self.kubectl("get", "deployments,daemonsets", "-n", NAMESPACE, "-o", "json"))["items"]
        for item in found:
            status, kind = item["status"], item["kind"]
            wanted = status.get("desiredNumberScheduled", 0) if kind == "DaemonSet" else item["spec"]["replicas"]
            ready = status.get("numberReady", 0) if kind == "DaemonSet" else status.get("readyReplicas", 0)
            if status.get("observedGeneration") != item["metadata"]["generation"] or not wanted or ready < wanted:
                return f"{item['metadata']['name']} has {ready} of {wanted}"
        return None if found else "no Deployments"

    def state(self) -> str:
        """Pods, their Events and the ends of their logs."""
        texts = [self.kubectl("get", "pods", "-n", NAMESPACE, "-o", "wide"), self.kubectl("events", "-n", NAMESPACE)]
        for pod in self.pods():
            name = pod["metadata"]["name"]
            try:
                texts.append(f"{name}:\n{self.kubectl('logs', '-n', NAMESPACE, name, '--tail=20')}")
            except ClusterError as error:
                texts.append(f"{name}: {error}")
        return "\n".join(texts)


def overlay_folder(name: str) -> Path:
    folder = OVERLAYS / name
    if not (folder / "kustomization.yaml").exists():
        known = ", ".join(sorted(path.name for path in OVERLAYS.iterdir()))
        raise ClusterError(f"there is no overlay {name!r} in install/overlays; there are {known}", WRONG_INPUT)
    return folder


def with_image(manifests: str, name: str) -> str:
    """
    >>> with_image("  image: carico:0.1.0\\n  - image: other:1\\n", "carico.test/carico:dev")
    '  image: carico.test/carico:dev\\n  - image: other:1\\n'
    """
    return re.sub(r"(?m)^( *(?:- )?image: )carico:\S+$", rf"\g<1>{name}", manifests)


def newest() -> Run:
    """The youngest cluster of this checkout that has a real node."""
    found = [run for run in runs.known() if runs.init_pid(run) is not None]
    if not found:
        raise ClusterError("there is no cluster with a real node; start one: make cluster KUBELET=1", WRONG_INPUT)
    return max(found, key=lambda run: run.folder.stat().st_ctime)


def _run(command: list[str], stdin: str | None = None, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        raise ClusterError(f"{Path(command[0]).name} {' '.join(command[1:4])} …: {done.stderr.strip()}")
    return done.stdout


def main(argv: list[str]) -> int:
    overlay = argv[0] if argv else "default"
    try:
        overlay_folder(overlay)
        installed = Installed(newest())
        installed.import_image(image.image_file())
        before = time.monotonic()
        installed.apply(overlay)
        installed.wait_until_ready()
    except ClusterError as error:
        print(f"deploy: {error}", file=sys.stderr)
        return error.code
    print(f"Carico is ready after {time.monotonic() - before:.0f} s:\n")
    print(installed.kubectl("get", "pods", "-n", NAMESPACE))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
