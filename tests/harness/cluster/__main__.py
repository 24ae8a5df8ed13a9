"""The command line behind `make cluster`."""

from __future__ import annotations

import argparse
import sys

from . import binaries, builder
from .cluster import MOST_NODES, Cluster, check
from .errors import WRONG_INPUT, ClusterError
from .images import BUSYBOX

DEFAULT_NODES = 10
YES, NO = ("1", "true", "yes"), ("", "0", "false", "no")


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        arguments.word(arguments)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("cluster: interrupted, nothing is left running", file=sys.stderr)
        return 130
    return 0


def up(arguments: argparse.Namespace) -> None:
    """Start a cluster and leave it running."""
    kubelet = _switch("KUBELET", arguments.kubelet)
    nodes = _number(arguments.nodes, 0 if kubelet else DEFAULT_NODES)
    check(nodes, kubelet)
    cluster = Cluster(nodes, kubelet, arguments.containerd, builder.say)
    try:
        print(_how_to_use(cluster, nodes, kubelet))
    except BaseException:
        cluster.stop()
        raise
    cluster.detach()


def build(_: argparse.Namespace) -> None:
    """Build everything that the cache lacks."""
    for name, path in builder.build(binaries.TOOLS).items():
        print(f"{name:<24} {path}")


def _how_to_use(cluster: Cluster, nodes: int, kubelet: bool) -> str:
    kinds = [*(["1 real node"] if kubelet else []), *([f"{nodes} kwok nodes"] if nodes or not kubelet else [])]
    lines = [
        f"cluster {cluster.run.id} is ready after {cluster.started_in:.0f} s: {' and '.join(kinds)}",
        "",
        f"    export KUBECONFIG={cluster.run.link / 'kubeconfig'}",
        f"    {cluster.kubectl_binary} get nodes",
        "",
        f"logs: {cluster.run.link / 'logs'}",
    ]
    if kubelet:
        lines += [
            f"image for pods: {BUSYBOX}, with imagePullPolicy: Never",
            f"inside its namespaces: {' '.join(cluster.enter(['/bin/bash']))}",
        ]
    return "\n".join([*lines, "stop: make cluster-down"])


def _number(text: str, default: int) -> int:
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        line = f"NODES={text} is not a number of nodes: give a whole number from 0 to {MOST_NODES}"
        raise ClusterError(line, WRONG_INPUT) from None


def _switch(name: str, text: str) -> bool:
    if text.lower() not in (*YES, *NO):
        raise ClusterError(f"{name}={text} is neither yes nor no: give {name}=1 or leave it out", WRONG_INPUT)
    return text.lower() in YES


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    words = parser.add_subparsers(required=True, metavar="WORD")
    start = words.add_parser("up", help="start a cluster and leave it running")
    start.add_argument("--nodes", default="", help=f"kwok nodes ({DEFAULT_NODES}, or none beside a real node)")
    start.add_argument("--kubelet", default="", help="1 for a real node; needs root")
    start.add_argument("--containerd", default="2", choices=["2", "1.6"], help="runtime of the real node")
    start.set_defaults(word=up)
    words.add_parser("build", help="build all binaries").set_defaults(word=build)
    return parser


if __name__ == "__main__":
    sys.exit(main())
