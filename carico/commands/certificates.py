"""`carico certificates`: a private CA, and the certificates that the three processes need from it.

    carico certificates --dir tls --servers scheduler.example,10.0.0.7 --nodes node-1,node-2

A further call keeps the CA, re-creates the named certificates, and leaves all others unchanged.
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

from carico.errors import InvalidMessage, UsageError
from carico.wire.certificates import Authority, Pair
from carico.wire.codec import checks
from carico.wire.identity import REPLICA, SCHEDULER

DAYS = 365


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, required=True, metavar="DIR", help="where they are kept; made if need be")
    parser.add_argument(
        "--servers", default="", metavar="HOST,…", help="host names and addresses of schedulers and aggregators"
    )
    parser.add_argument("--nodes", default="", metavar="NAME,…", help="nodes whose agents get a certificate")
    parser.add_argument("--days", type=int, default=DAYS, help=f"how long they are valid (default: {DAYS})")


def run(args: argparse.Namespace) -> int:
    servers, nodes = _words(args.servers), _words(args.nodes)
    if not servers and not nodes:
        raise UsageError("nothing to make: name --servers, --nodes or both")
    if args.days < 1:
        raise UsageError(f"--days {args.days} is less than 1")
    try:
        for node in nodes:
            checks.name(node)
        args.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = Authority(args.dir, life=datetime.timedelta(days=args.days), keep_key=True)
    except InvalidMessage as error:
        raise UsageError(f"--nodes: {error.detail}") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"--dir {args.dir}: {error}") from error
    if servers:
        print(f"scheduler  --client-ca {authority.cert} {_flags(authority.issue(SCHEDULER, *servers))}")
        print(f"aggregator  --client-ca {authority.cert} {_flags(authority.issue(REPLICA, *servers))}")
        print(f"aggregator with --peers  the same, and --tls-ca {authority.cert}")
    for node in nodes:
        print(f"agent on {node}  --tls-ca {authority.cert} {_flags(authority.issue_node(node))}")
    print(f"{args.dir / 'ca.key'} signs for every node: keep it off the cluster.")
    return 0


def _flags(pair: Pair) -> str:
    return f"--tls-cert {pair.cert} --tls-key {pair.key}"


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]
