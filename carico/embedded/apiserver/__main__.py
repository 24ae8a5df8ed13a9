"""The embedded API server as a process: `python -m carico.embedded.apiserver --kubeconfig FILE`.

The kubeconfig appears when the server listens. It ends with SIGTERM or SIGINT, and all objects are lost.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from carico import logs
from carico.clock import SystemClock
from carico.embedded.apiserver.logs import in_folder
from carico.embedded.apiserver.server import ApiServer
from carico.errors import CaricoError, UsageError
from carico.http.address import is_loopback, split_address
from carico.process import run_until_signal

log = logging.getLogger("carico.embedded.apiserver")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m carico.embedded.apiserver", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 takes a free one")
    parser.add_argument(
        "--kubeconfig", type=Path, required=True, help="kubeconfig file to write, for the clients of this server"
    )
    parser.add_argument("--plaintext", action="store_true", help="serve HTTP without TLS, for measurements only")
    parser.add_argument("--logs", type=Path, help="folder of the containers' logs, as UID/CONTAINER.log")
    args = parser.parse_args(argv)
    try:
        if args.plaintext and not is_loopback(split_address(args.listen)[0]):
            raise UsageError(f"--plaintext: the token could be read in transit to {args.listen}; listen on loopback")
        logs.start()
        logs.dump_stacks_on_signal()
        run_until_signal(lambda stop: _serve(args, stop))
    except CaricoError as error:
        print(f"carico: {error}", file=sys.stderr)
        return error.exit_code
    return 0


async def _serve(args: argparse.Namespace, stop: asyncio.Event) -> None:
    async with ApiServer(SystemClock(), args.listen, tls=not args.plaintext) as server:
        if args.logs is not None:
            server.logs = in_folder(args.logs)
        server.kubeconfig(args.kubeconfig)
        log.info("API server at %s, kubeconfig in %s", server.address, args.kubeconfig)
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
