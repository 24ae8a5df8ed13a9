"""`carico doctor`."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace

from carico import flags, output
from carico.doctor import cluster, endpoints, machine, runtime
from carico.doctor.finding import MISSING, WARNING, Finding, as_table
from carico.scheduler.http import remote
from carico.settings import AgentSettings, SchedulerSettings, TlsFiles
from carico.table import Colours

SETTINGS = {"proc_root", "cgroup_root", "runtime", "containerd_socket", "cri_socket", "schedulers", "aggregator"}
LISTENERS = {"debug_listen", "extender_listen"}  # of the scheduler: what it serves determines the rights that it needs


def add_arguments(parser: flags.CommandParser) -> None:
    output.add_flag(parser, ("json", "yaml"))
    remote.add_flags(parser)
    flags.add_settings(parser, AgentSettings, only=SETTINGS | flags.names(TlsFiles) - {"token_file"})
    flags.add_settings(parser, SchedulerSettings, only=LISTENERS, common=())


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
    # --token-file is the token for the scheduler's pages; that of the agent is in its own settings.
    agents = argparse.Namespace(**{name: value for name, value in vars(args).items() if name != "token_file"})
    node = flags.settings_of(AgentSettings, "agent", agents)
    async with remote.reach(args) as pages, pages.client or remote.usual() as client:
        return [
            *machine.look(node),
            *await runtime.look(node),
            *await cluster.look(_scheduler(args), args.context),
            *await endpoints.look(node, client, named=bool(remote.named(args))),
        ]


def _scheduler(args: argparse.Namespace) -> SchedulerSettings:
    """The scheduler's own settings, from its section of the file and from the environment; --lease names the Lease."""
    only = argparse.Namespace(config=args.config, **{name: getattr(args, name) for name in LISTENERS})
    found = flags.settings_of(SchedulerSettings, "scheduler", only)
    namespace, name = remote.lease_of(args)
    return replace(
        found,
        kubeconfig=args.kubeconfig or found.kubeconfig,
        exec_in_pod=args.exec_in_pod or found.exec_in_pod,
        leader_elect_resource_namespace=namespace,
        leader_elect_resource_name=name,
    )
