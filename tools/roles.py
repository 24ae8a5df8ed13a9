"""Prints the ClusterRole and Role that a scheduler with these settings needs: `tools/roles.py | kubectl apply -f -`."""

from __future__ import annotations

import sys
from pathlib import Path

from carico import flags
from carico.errors import CaricoError
from carico.flags import CommandParser
from carico.kube.roles import manifests
from carico.scheduler import enabled_parts
from carico.scheduler.assembly import registered_calls
from carico.settings import SchedulerSettings

SETTINGS = {
    "debug_listen",
    "extender_listen",
    "leader_elect",
    "leader_elect_resource_name",
    "leader_elect_resource_namespace",
}


def main() -> int:
    parser = CommandParser(prog="tools/roles.py", description=__doc__)
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file of the scheduler")
    flags.add_settings(parser, SchedulerSettings, only=SETTINGS)
    try:
        settings = flags.settings_of(SchedulerSettings, "scheduler", parser.parse_args(sys.argv[1:]))
    except CaricoError as error:
        print(f"roles: {error}", file=sys.stderr)
        return error.exit_code
    also = registered_calls(settings)
    where, name = settings.leader_elect_resource_namespace, settings.leader_elect_resource_name
    print(manifests(enabled_parts.parts(settings), where, name, also=also), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
