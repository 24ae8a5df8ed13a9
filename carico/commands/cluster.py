"""`carico cluster create|delete|kubeconfig|list`: embedded clusters in the background, used as with kind."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import carico
from carico import output
from carico.embedded.clusters import home
from carico.embedded.clusters.home import ClusterFolder
from carico.embedded.supervisor.guard import end_abandoned
from carico.errors import CaricoError, UsageError
from carico.logs import timestamp

DEFAULT = "carico"
PATIENCE = 180.0  # s until a cluster runs, without the time for its simulated nodes
NODES_PER_SECOND = 50
GRACE = 30.0  # s for a cluster to end
LOOK = 0.1  # s between two checks
LAST_LINES = 5  # of a log


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} create|delete|kubeconfig|list [NAME] [OPTION …]"
    parser.epilog = (
        "create starts a cluster in the background: an API server in memory, aggregator, scheduler and agent, and this "
        "machine as its node, on which a pod's command becomes a process. delete stops it and all its pods. kubeconfig "
        "prints its kubeconfig. list shows all clusters."
    )
    actions = ("create", "delete", "kubeconfig", "list")
    parser.add_argument("action", choices=actions, metavar="|".join(actions), help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"the cluster (default: {DEFAULT})")
    about = "with create: add N simulated nodes, which run no processes"
    parser.add_argument("--simulate", type=int, default=0, metavar="N", help=about)
    parser.add_argument("--path", action="store_true", help="with kubeconfig: print the path of the file instead")
    output.add_flag(parser, ("json", "yaml", "name"))


def run(args: argparse.Namespace) -> int:
    if args.simulate < 0 or (args.simulate and args.action != "create"):
        raise UsageError(f"--simulate {args.simulate}: a number of nodes for `carico cluster create`")
    if args.path and args.action != "kubeconfig":
        raise UsageError("--path is for `carico cluster kubeconfig`")
    if args.output and args.action != "list":
        raise UsageError(f"-o {args.output} is for `carico cluster list`")
    if args.action == "list":
        if args.name:
            raise UsageError(f"unexpected argument {args.name!r}: list shows all clusters")
        return _list(args.output)
    where = home.named(args.name or DEFAULT)
    if args.action == "create":
        return _create(where, args.simulate)
    if args.action == "delete":
        return _delete(where)
    return _kubeconfig(where, args.path)


def _create(where: ClusterFolder, simulated: int) -> int:
    end_abandoned()
    lock = where.make()
    print(f"Creating cluster {where.name!r} …", file=sys.stderr, flush=True)
    environment = dict(os.environ) | {"PYTHONPATH": _python_path()}
    command = [sys.executable, "-m", "carico.embedded.clusters.daemon", str(where.folder), str(lock), str(simulated)]
    with where.log.open("wb") as log:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,
        )
    os.close(lock)
    try:
        state = _wait(where, process, PATIENCE + simulated / NODES_PER_SECOND)
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        where.remove()
        raise
    _greet(where, state)
    return 0


def _python_path() -> str:
    """PYTHONPATH with the place of this program, also if that was relative to the current folder."""
    return os.pathsep.join([str(Path(carico.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)


def _wait(where: ClusterFolder, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while (state := where.read_state()) is None:
        if process.poll() is not None:
            lines = where.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            raise CaricoError("\n".join([f"cluster {where.name!r} did not start; the end of its log:", *lines]))
        if time.monotonic() > deadline:
            raise CaricoError(f"cluster {where.name!r} did not start within {seconds:.0f} s")
        time.sleep(LOOK)
    return state


def _greet(where: ClusterFolder, state: dict[str, Any]) -> None:
    address = state["dashboard"].removeprefix("http://").rstrip("/")
    name = "" if where.name == DEFAULT else f" {where.name}"
    print(
        f"Cluster {where.name!r} is running. To use it:\n\n"
        f"  export KUBECONFIG={where.kubeconfig}\n"
        f"  export CARICO_SERVER={address}\n"
        f"  kubectl get nodes\n\n"
        f"Pods with `schedulerName: carico` run as processes on this machine. Dashboard: {state['dashboard']}\n"
        f"`carico cluster delete{name}` deletes it."
    )


def _delete(where: ClusterFolder) -> int:
    if not where.exists:
        raise CaricoError(f"there is no cluster {where.name!r}; `carico cluster list` lists them")
    if (pid := where.supervisor()) is not None:
        _end(where, pid)
    where.remove()
    print(f"Deleted cluster {where.name!r}.")
    return 0


def _end(where: ClusterFolder, pid: int) -> None:
    """Ask the supervisor to end, and kill it if it does not: the job supervisor then ends the rest."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if where.supervisor() != pid:
                return
            time.sleep(LOOK)
    raise CaricoError(f"cluster {where.name!r} does not end: process {pid}")


def _kubeconfig(where: ClusterFolder, path: bool) -> int:
    if where.supervisor() is None:
        raise CaricoError(f"cluster {where.name!r} does not run; `carico cluster create {where.name}` starts it")
    print(where.kubeconfig if path else where.kubeconfig.read_text(), end="\n" if path else "")
    return 0


def _list(form: str | None) -> int:
    found = [_row(one) for one in home.every() if one.exists]
    if form == "name":
        print("".join(f"{row['name']}\n" for row in found), end="")
    elif form:
        output.show(form, {"clusters": found})
    elif not found:
        print("No clusters; `carico cluster create` makes one.", file=sys.stderr)
    else:
        columns = ("name", "status", "nodes", "dashboard", "kubeconfig")
        output.show_table(columns, [[str(row[column]) for column in columns] for row in found], right=(2,))
    return 0


def _row(where: ClusterFolder) -> dict[str, Any]:
    state, runs = where.read_state(), where.supervisor() is not None
    status = "stopped" if not runs else "running" if state else "starting"
    started = timestamp(state["started"]) if state else ""
    return {
        "name": where.name,
        "status": status,
        "nodes": state["nodes"] if state else 0,
        "dashboard": state["dashboard"] if state else "",
        "kubeconfig": str(where.kubeconfig),
        "started": started,
    }
