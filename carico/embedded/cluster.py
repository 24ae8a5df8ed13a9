"""The embedded cluster: every process of a real one, on the local machine, for as long as this process lives.

    api         stores the objects; access with the kubeconfig
    aggregator, scheduler, agent    as on any cluster, with TLS between them
    node        the local machine: a pod's command becomes a process

All of them are started under a Guard (supervisor/guard.py): when this process ends, in whatever way, they end too. If
one of them exits, the cluster ends, and the error contains the end of its log.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import urllib.request
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from carico.embedded.simulated.nodes import GROUP, node_names
from carico.embedded.supervisor.guard import ChildProcess, Guard, LaunchCommand
from carico.errors import CaricoError
from carico.wire.certificates import Authority, Pair
from carico.wire.identity import NODE_PREFIX, NODES

PATIENCE = 30.0  # s for each process to become ready
# Below Linux's ephemeral ports: no outgoing connection takes one before its process listens, seconds later.
PORTS = range(20_000, 32_000)
PAGE_PORT = 9469  # of the scheduler's page, if it is free: a fixed address for users
LAST_WORDS = 5  # lines of a log
SETTINGS = """\
[scheduler]
leader_elect = false
[scheduler.profiles.carico]
# What kube-scheduler looks at, and nothing else: requests.
[scheduler.profiles.packed]
disable = ["Capacity"]
"""


class LocalCluster:
    """Start it inside a Guard; `folder` holds kubeconfig, certificates, logs and sockets."""

    def __init__(self, guard: Guard, folder: Path, node: str = "this-machine") -> None:
        self._guard = guard
        self.folder = folder
        self.node = node
        self.kubeconfig = folder / "kubeconfig"
        self.pods = folder / "pods"
        self.page = ""
        self._processes: dict[str, ChildProcess] = {}

    async def start(self) -> None:
        for name in ("logs", "tls", "pods"):
            (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        (self.folder / "carico.toml").write_text(SETTINGS)
        authority = self._authority = Authority(self.folder / "tls")
        server = authority.issue("localhost", "localhost", "127.0.0.1")
        node = authority.issue_node(self.node)
        await self._module(
            "apiserver", "carico.embedded.apiserver", "--kubeconfig", self.kubeconfig, "--logs", self.pods / "logs"
        )
        await self._until("apiserver", self.kubeconfig.exists)
        serving = ["--client-ca", authority.cert, *_pair(server)]
        aggregator, scheduler = free_port(), free_port()
        self._reports_to = f"localhost:{scheduler}"
        pages = {name: free_port() for name in ("scheduler", "aggregator", "agent")}
        page = self._page_port()
        self.page = f"http://127.0.0.1:{page}/"
        await self._command("aggregator", pages, "--grpc-listen", f"localhost:{aggregator}", *serving)
        await self._command(
            *("scheduler", pages, "--kubeconfig", self.kubeconfig, "--debug-listen", f"127.0.0.1:{page}"),
            *("--grpc-listen", f"localhost:{scheduler}", *serving),
        )
        await self._node()
        await self._command(
            *("agent", pages, "--node-name", self.node, "--runtime", "cri", "--cri-socket", self.cri_socket),
            *("--own-limits", "--aggregator", f"localhost:{aggregator}", "--schedulers", f"localhost:{scheduler}"),
            # A separate file: an agent installed on this machine keeps its checkpoint in the default one.
            *("--state-file", self.folder / "agent-state.json", "--tls-ca", authority.cert, *_pair(node)),
        )
        for name, port in pages.items():
            await self._until(name, partial(_ready, port))

    async def simulate(self, nodes: int) -> None:
        """Add simulated nodes; call it once, after `start`."""
        names = [f"{NODE_PREFIX}{name}" for name in node_names(nodes)]
        for first in range(0, nodes, GROUP):
            its = names[first : first + GROUP]
            self._authority.issue(f"simulated-{first // GROUP}", *its, organisation=NODES)
        tls = self._authority.cert.parent
        await self._module(
            *("simulated", "carico.embedded.simulated", "--kubeconfig", self.kubeconfig, "--nodes", nodes),
            *("--schedulers", self._reports_to, "--tls-ca", self._authority.cert),
            *_pair(Pair(tls / "simulated-{}.pem", tls / "simulated-{}.key")),
        )
        has_reported = partial(self._has_logged, "simulated", "all nodes have reported")
        await self._until("simulated", has_reported, PATIENCE + nodes / 50)

    def _page_port(self) -> int:
        claimed = claim(PAGE_PORT)
        if claimed is None:
            return free_port()
        weakref.finalize(self, claimed.close)
        return free_port(PAGE_PORT)

    def _has_logged(self, name: str, words: str) -> bool:
        return words in (self.folder / "logs" / f"{name}.log").read_text(errors="replace")

    @property
    def cri_socket(self) -> Path:
        return self.folder / "cri.sock"

    async def failed(self) -> str:
        """Wait until one of the processes ends; returns its name, exit code and the end of its log."""
        waits = {asyncio.create_task(process.wait()): name for name, process in self._processes.items()}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            ended = done.pop()
            return self._last_words(waits[ended], ended.result().exit_code)
        finally:
            for task in waits:
                task.cancel()

    async def _node(self) -> None:
        await self._module(
            *("node", "carico.embedded.node", "--kubeconfig", self.kubeconfig, "--name", self.node),
            *("--cri-socket", self.cri_socket, "--dir", self.pods),
        )
        await self._until("node", self.cri_socket.exists)

    async def _command(self, command: str, pages: dict[str, int], *flags: object) -> None:
        """With a separate configuration file: the machine's own, if there is one, belongs to another cluster."""
        own = ("--config", self.folder / "carico.toml", "--listen", f"127.0.0.1:{pages[command]}")
        await self._module(command, "carico.cli", command, *own, *flags)

    async def _module(self, name: str, module: str, *flags: object) -> None:
        argv = [sys.executable, "-m", module, *map(str, flags)]
        log = self.folder / "logs" / f"{name}.log"
        environment = dict(os.environ) | {"OPENBLAS_NUM_THREADS": "1"}
        self._processes[name] = await self._guard.start(
            LaunchCommand(argv, environment, stdout=str(log), stderr=str(log))
        )

    async def _until(self, name: str, ready: Callable[[], bool], seconds: float = PATIENCE) -> None:
        process = self._processes[name]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while process.ended is None:
                    if await asyncio.to_thread(ready):
                        return
                    await asyncio.sleep(0.05)
        code = process.ended.exit_code if process.ended else None
        raise CaricoError(self._last_words(name, code, seconds))

    def _last_words(self, name: str, code: int | None, seconds: float = PATIENCE) -> str:
        log = self.folder / "logs" / f"{name}.log"
        with suppress(OSError):
            lines = log.read_text(errors="replace").splitlines()[-LAST_WORDS:]
            what = f"was not ready within {seconds:.0f} s" if code is None else f"ended with exit code {code}"
            return "\n".join([f"the {name} of the embedded cluster {what}; the end of its log:", *lines])
        return f"the {name} of the embedded cluster wrote no log"


def claim(port: int) -> socket.socket | None:
    """An exclusive claim on a port among embedded clusters, while the socket is open; None if another one has it.

    The scheduler listens seconds after its port was found free, and another demo may look for a port in the meantime.
    """
    sign = socket.socket(socket.AF_UNIX)
    try:
        sign.bind(f"\0carico-port-{port}")  # an abstract socket: it disappears with the process, however that ends
    except OSError:
        sign.close()
        return None
    return sign


def free_port(wanted: int = 0) -> int:
    """A local port that nothing listens on; `wanted` if it is free."""
    for port in ([wanted] if wanted else []) + random.sample(PORTS, 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise CaricoError("no port of this machine is free")


def _pair(pair: Pair) -> Sequence[object]:
    return ["--tls-cert", pair.cert, "--tls-key", pair.key]


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
