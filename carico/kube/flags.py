"""Flags and names as kubectl takes them: --kubeconfig, --context, -n, `pod/web`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from carico.errors import UsageError
from carico.flags import CommandParser
from carico.kube import credentials
from carico.kube.identity import Credentials

PODS = ("pod", "pods", "po")
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Cluster")
    about = "kubeconfig file (default: $KUBECONFIG, the pod's service account, ~/.kube/config)"
    group.add_argument("--kubeconfig", type=Path, metavar="FILE", help=about)
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    about = "run the credential plugin of a kubeconfig inside a pod too"
    action = group.add_argument("--exec-in-pod", action="store_true", help=about)
    if isinstance(parser, CommandParser):
        parser.rare.append(action)


def add_namespace(parser: argparse.ArgumentParser) -> None:
    about = "namespace of the pod (default: the context's)"
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help=about)


def find(args: argparse.Namespace) -> Credentials:
    """The credentials for the flags of `add_cluster`."""
    return credentials.find(args.kubeconfig, context=args.context, exec_in_pod=args.exec_in_pod)


def namespace_of(args: argparse.Namespace) -> str:
    """The one from --namespace, else that of the context, else `default`."""
    if args.namespace:
        return str(args.namespace)
    try:
        return find(args).namespace
    except UsageError:
        if args.kubeconfig or args.context:
            raise
        return "default"  # there is no kubeconfig at all


def pod_name(words: Sequence[str], namespace: str | None) -> tuple[str | None, str]:
    """Namespace, if one was named, and name.

    >>> pod_name(["web"], None), pod_name(["pod/web"], "team"), pod_name(["pod", "web"], None)
    ((None, 'web'), ('team', 'web'), (None, 'web'))
    >>> pod_name(["team/web"], None), pod_name(["pod", "team/web"], None)
    (('team', 'web'), ('team', 'web'))
    """
    shown = " ".join(words)
    kind, given, last = words[0] if len(words) > 1 else "pod", namespace, words[-1]
    front, slash, name = last.rpartition("/")
    if slash and len(words) == 1 and front in PODS:
        front = ""
    if kind not in PODS or len(words) > 2 or "/" in front:
        raise UsageError(f"{shown!r} is not a pod; write it like web, pod/web or NAMESPACE/web")
    if front and given not in (None, front):
        raise UsageError(f"{shown!r} and --namespace {given} are two namespaces; name one")
    for part in (name, front or given):
        if part is not None and not NAME.fullmatch(part):
            raise UsageError(f"{part!r} is not a valid name in Kubernetes: lower-case letters, digits, dashes and dots")
    return front or given, name
