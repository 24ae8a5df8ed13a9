"""`carico doctor`."""

from __future__ import annotations

import argparse
import asyncio

from carico import flags, output
from carico.doctor import cluster, endpoints, machine, runtime
from carico.doctor.finding import MISSING, WARNING, Finding, as_table
from carico.scheduler import remote
from carico.settings import AgentSettings, SchedulerSettings, TlsFiles
from carico.table import Colours

SETTINGS = {"proc_root", "cgroup_root", "runtime", "containerd_socket", "cri_socket", "schedulers", "aggregator"}


def add_arguments(parser: flags.CommandParser) -> None:
    output.add_flag(parser, ("json", "yaml"))
    remote.add_flags(parser)
    flags.add_settings(parser, AgentSettings, only=SETTINGS | flags.names(TlsFiles))


def run(args: argparse.Namespace) -> int:
    findings = asyncio.run(_look(args))
    missing = sum(finding.state == MISSING for finding in findings)
    if args.output:
        warnings = sum(finding.state == WARNING for finding in findings)
        output.show(args.output, {"findings": findings, "warnings": warnings, "missing": missing})
    else:
        print(as_table(findings, Colours()))
    return 1 if missing else 0


async def _look(args: argparse.Namespace) -> list[Finding]:
    node = flags.settings_of(AgentSettings, "agent", args)
    namespace, name = remote.lease_of(args)
    scheduler = SchedulerSettings(
        kubeconfig=args.kubeconfig, leader_elect_resource_namespace=namespace, leader_elect_resource_name=name
    )
    async with remote.reach(args) as pages:
        return [
            *machine.look(node),
            *await runtime.look(node),
            *await cluster.look(scheduler, args.context),
            *await endpoints.look(node, pages.url, named=bool(remote.named(args))),
        ]
