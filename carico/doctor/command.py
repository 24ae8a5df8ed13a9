"""The word `carico doctor`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import msgspec

from carico import knobs
from carico.doctor import cluster, endpoints, machine, runtime
from carico.doctor.finding import MISSING, WARNING, Finding, as_table
from carico.settings import AgentSettings, SchedulerSettings, TlsFiles
from carico.table import Colours

KNOBS = {"proc_root", "cgroup_root", "runtime", "containerd_socket", "cri_socket", "schedulers", "aggregator"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="how to reach the API server")
    parser.add_argument("--server", metavar="URL", help="a running scheduler's pages, e.g. http://127.0.0.1:9469")
    lease = "kube-system/carico-scheduler"
    parser.add_argument(
        "--lease", metavar="NAMESPACE/NAME", default=lease, help=f"the schedulers' Lease (default: {lease})"
    )
    knobs.add_flags(parser, AgentSettings, only=KNOBS | knobs.names(TlsFiles))


def run(args: argparse.Namespace) -> int:
    findings = asyncio.run(_look(args))
    missing = sum(finding.state == MISSING for finding in findings)
    if args.json:
        warnings = sum(finding.state == WARNING for finding in findings)
        print(msgspec.json.encode({"findings": findings, "warnings": warnings, "missing": missing}).decode())
    else:
        print(as_table(findings, Colours()))
    return 1 if missing else 0


async def _look(args: argparse.Namespace) -> list[Finding]:
    node = knobs.from_flags(AgentSettings, "agent", args)
    namespace, _, name = args.lease.rpartition("/")
    scheduler = SchedulerSettings(kubeconfig=args.kubeconfig, lease_namespace=namespace, lease_name=name)
    return [
        *machine.look(node),
        *await runtime.look(node),
        *await cluster.look(scheduler),
        *await endpoints.look(node, args.server),
    ]
