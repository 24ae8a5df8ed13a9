"""The background process of a cluster: `python -m carico.embedded.clusters.daemon FOLDER LOCK NODES`.

It is started by `carico cluster create`, holds the lock of the cluster's folder and ends with SIGTERM. When it ends, in
whatever way, every process of the cluster ends too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

from carico import __version__, logs
from carico.embedded.cluster import LocalCluster
from carico.embedded.clusters.home import ClusterFolder
from carico.embedded.supervisor.guard import Guard
from carico.errors import CaricoError
from carico.process import call_on_stop_signals

log = logging.getLogger("carico.embedded.clusters")


def main(argv: list[str]) -> int:
    folder, lock, simulated = Path(argv[0]), int(argv[1]), int(argv[2])
    os.set_inheritable(lock, False)  # the lock is released when this process ends, even if descendants are left
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    logs.start()
    logs.dump_stacks_on_signal()
    try:
        asyncio.run(_until_stopped(ClusterFolder(folder), simulated))
    except CaricoError as error:
        log.error("%s", error)
        return error.exit_code
    return 0


async def _until_stopped(home: ClusterFolder, simulated: int) -> None:
    serving = asyncio.create_task(_serve(home, simulated))
    call_on_stop_signals(serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        log.info("ended")


async def _serve(home: ClusterFolder, simulated: int) -> None:
    async with Guard() as guard:
        cluster = LocalCluster(guard, home.folder)
        await cluster.start()
        if simulated:
            await cluster.simulate(simulated)
        home.write_state(
            {"version": __version__, "dashboard": cluster.page, "nodes": 1 + simulated, "started": time.time()}
        )
        log.info("running; dashboard at %s", cluster.page)
        raise CaricoError(await cluster.failed())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
