"""The node as a process.

python -m carico.embedded.node --kubeconfig FILE --name NAME --cri-socket SOCKET --dir FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import platform
import sys
from pathlib import Path

from carico import logs
from carico.clock import Clock, SystemClock
from carico.embedded.node.cri import CriServer
from carico.embedded.node.kubelet import EmbeddedKubelet
from carico.embedded.node.registration import Registration
from carico.embedded.node.runtime import Runtime
from carico.embedded.node.worker import WorkerTools
from carico.embedded.supervisor.guard import Guard, end_abandoned
from carico.errors import CaricoError
from carico.kube import credentials
from carico.kube.client import Client
from carico.process import run_parts, run_until_signal
from carico.settings import TelemetrySettings
from carico.telemetry.sampler import Sampler
from carico.types import NodeSize

log = logging.getLogger("carico.embedded.node")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m carico.embedded.node", description="A node that is this machine.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="how the API server is reached")
    parser.add_argument("--name", default=platform.node(), help="the node's name (default: the host name)")
    parser.add_argument("--cri-socket", type=Path, required=True, help="socket for `carico agent --runtime cri`")
    parser.add_argument("--dir", type=Path, required=True, help="for the pods' folders and logs")
    args = parser.parse_args(argv)
    logs.start()
    logs.dump_stacks_on_signal()
    try:
        run_until_signal(lambda stop: _run(args, stop))
    except CaricoError as error:
        print(f"carico: {error}", file=sys.stderr)
        return error.exit_code
    return 0


async def _run(args: argparse.Namespace, stop: asyncio.Event) -> None:
    await asyncio.to_thread(end_abandoned)
    await run(args.kubeconfig, args.name, args.cri_socket, args.dir, stop)


async def run(
    kubeconfig: Path, name: str, socket: Path, folder: Path, stop: asyncio.Event, clock: Clock | None = None
) -> None:
    """Run until `stop` is set; then end every pod's processes. The logs are FOLDER/logs/UID/CONTAINER.log."""
    clock = clock or SystemClock()
    for each in (folder / "pods", folder / "logs"):
        each.mkdir(parents=True, exist_ok=True, mode=0o700)
    client = Client(credentials.from_kubeconfig(kubeconfig), agent="carico-node")
    runtime = Runtime(clock.wall)
    cri = CriServer(runtime, socket)
    async with Guard() as guard:
        await cri.start()
        registration = Registration(client, name, machine_size(), folder, clock)
        kubelet = EmbeddedKubelet(name, WorkerTools(client, guard, runtime, clock, folder / "pods", folder / "logs"))

        async def work() -> None:
            await registration.register()
            async with asyncio.TaskGroup() as group:
                group.create_task(registration.run())
                group.create_task(kubelet.run())

        try:
            await run_parts(stop, [work()])
        finally:
            await cri.stop()
            await client.close()
    log.info("stopped")


def machine_size() -> NodeSize:
    """The size of this machine, or of this process's control group if that is smaller."""
    return Sampler(TelemetrySettings(own_limits=True)).size()
