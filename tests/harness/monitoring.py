"""An embedded cluster whose processes a real Prometheus scrapes, with the labels that a cluster's Prometheus sets."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from harness.cluster.api import Api
from harness.cluster.ports import free_port

PATIENCE = 120.0  # s
REAL_NODE = "this-machine"
COMPONENTS = ("agent", "aggregator", "scheduler")
Sample = dict[str, Any]


class Prometheus:
    def __init__(self, folder: Path, targets: dict[str, int], interval: float = 1.0) -> None:
        """`targets`: component to port. The jobs are called as in a cluster, and every target has a pod's labels."""
        self.port = free_port()
        jobs = [
            {
                "job_name": f"carico-{name}",
                "honor_labels": True,
                "static_configs": [
                    {
                        "targets": [f"127.0.0.1:{port}"],
                        "labels": {"namespace": "carico-system", "pod": f"carico-{name}-0", "container": name},
                    }
                ],
            }
            for name, port in targets.items()
        ]
        config = folder / "prometheus.yml"
        seconds = f"{interval:g}s"
        config.write_text(json.dumps({"global": {"scrape_interval": seconds}, "scrape_configs": jobs}))
        self._log = (folder / "prometheus.log").open("wb")
        flags = (
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--query.lookback-delta=1m",
        )
        self._child = subprocess.Popen(["prometheus", *flags], stdout=self._log, stderr=self._log)
        until("Prometheus is ready", self._is_ready)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=10):
                return True
        except OSError:
            return False

    def stop(self) -> None:
        self._child.terminate()
        self._child.wait(timeout=PATIENCE)
        self._log.close()

    def query(self, expr: str) -> list[Sample]:
        """The samples now; a query that Prometheus rejects raises AssertionError with its message."""
        return self._ask("query", query=expr)

    def range(self, expr: str, start: float, end: float, step: float) -> list[Sample]:
        return self._ask("query_range", query=expr, start=str(start), end=str(end), step=str(step))

    def _ask(self, what: str, **parameters: str) -> list[Sample]:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters['query']}: {error.read().decode()}") from error
        assert found["status"] == "success", found
        result: list[Sample] = found["data"]["result"]
        return result

    def until(self, expr: str, seconds: float = PATIENCE) -> list[Sample]:
        """Waits until the query has a result."""
        found: list[Sample] = until(f"{expr} has a result", lambda: self.query(expr), seconds)
        return found


def until(what: str, fact: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := fact()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)
    return found


class MonitoredCluster:
    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.api = Api(kubeconfig)
        self.prometheus = Prometheus(folder, {name: _metrics_port(folder, name) for name in COMPONENTS})

    def work(self, pods: int, seconds: float = 1.0) -> None:
        """Pods of two classes that compute for so long, half of them on the real node, which measures them.

        Those are placed by requests: the machine may be busy with other things.
        """
        busy = [sys.executable, "-c", f"import time\nend=time.time()+{seconds}\nwhile time.time()<end: pass"]
        for number in range(pods):
            app = "ab"[number % 2]
            real = {"nodeSelector": {"kubernetes.io/hostname": REAL_NODE}, "schedulerName": "packed"}
            self._pod(f"{app}-{number}-{time.time_ns()}", app, busy, **(real if number % 4 < 2 else {}))

    def refuse(self) -> None:
        """A pod that no node can take."""
        self._pod("nowhere", "nowhere", ["true"], nodeSelector={"example.com/none": "true"})

    def _pod(self, name: str, app: str, command: list[str], **spec: Any) -> None:
        container = {"name": "c", "image": "none", "command": command}
        whole = {"schedulerName": "carico", "restartPolicy": "Never", "containers": [container]} | spec
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}}, "spec": whole}
        self.api.post("/api/v1/namespaces/default/pods", pod)


def _metrics_port(folder: Path, command: str) -> int:
    """Of a process of the cluster, by its command line."""
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line and f"carico.cli {command} " in line:
            found = re.search(r" --listen 127\.0\.0\.1:(\d+)", line)
            assert found is not None, line
            return int(found[1])
    raise AssertionError(f"no {command} of {folder} runs")


@contextmanager
def monitored_cluster(simulated: int = 2) -> Iterator[MonitoredCluster]:
    """`carico cluster create` with this many simulated nodes beside the real one, and Prometheus."""
    folder = Path(tempfile.mkdtemp(prefix="cm-"))  # a short name: sockets are in it
    environ = {**os.environ, "XDG_STATE_HOME": str(folder)}
    environ.pop("CARICO_SERVER", None)

    def carico(*words: str) -> str:
        command = [sys.executable, "-m", "carico.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        said = carico("cluster", "create", "seen", "--simulate", str(simulated))
        kubeconfig = re.search(r"KUBECONFIG=(\S+)", said)
        assert kubeconfig is not None, said
        cluster = MonitoredCluster(folder, Path(kubeconfig[1]))
        try:
            yield cluster
        finally:
            cluster.prometheus.stop()
            cluster.api.close()
            carico("cluster", "delete", "seen")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
