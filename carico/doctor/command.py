"""The word `carico doctor`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import msgspec

from carico import flags
from carico.doctor import cluster, endpoints, machine, runtime
from carico.doctor.finding import MISSING, WARNING, Finding, as_table
from carico.settings import AgentSettings, SchedulerSettings, TlsFiles
from carico.table import Colours

SETTINGS = {"proc_root", "cgroup_root", "runtime", "containerd_socket", "cri_socket", "schedulers", "aggregator"}


def add_arguments(parser: flags.CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="how to reach the API server")
    parser.add_argument("--server", metavar="URL", help="a running scheduler's pages, e.g. http://127.0.0.1:9467")
    lease = "kube-system/carico-scheduler"
    parser.add_argument(
        "--lease", metavar="NAMESPACE/NAME", default=lease, help=f"the schedulers' Lease (default: {lease})"
    )
    flags.add_settings(parser, AgentSettings, only=SETTINGS | flags.names(TlsFiles))


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
    node = flags.settings_of(AgentSettings, "agent", args)
    namespace, _, name = args.lease.rpartition("/")
    scheduler = SchedulerSettings(
        kubeconfig=args.kubeconfig, leader_elect_resource_namespace=namespace, leader_elect_resource_name=name
    )
    return [
        *machine.look(node),
        *await runtime.look(node),
        *await cluster.look(scheduler),
        *await endpoints.look(node, args.server),
    ]
