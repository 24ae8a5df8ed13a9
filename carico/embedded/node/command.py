"""Command, environment and limits of a container's process."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

from carico.embedded.node.objects import RunContainer, RunPod, Variable
from carico.embedded.supervisor.guard import LaunchCommand
from carico.errors import CannotRun
from carico.kube import quantity

KEPT = ("PATH", "LANG", "LC_ALL", "TZ")  # inherited from this process's environment
ADDRESS = "127.0.0.1"  # of every pod: all share the machine's network
BLAME = 1000  # oom_score_adj: when the machine's memory runs out, pods are killed before the cluster's processes
REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")
SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


def command_of(pod: RunPod, container: RunContainer, folder: Path, log: Path) -> LaunchCommand:
    """`folder` is the pod's folder: the working directory of its containers unless they set another."""
    environment = environment_of(pod, container, folder)
    argv = [expand(word, environment) for word in (*container.command, *container.args)]
    if not container.command:
        raise CannotRun(f"container {container.name} has no command; images are not used here, so it must name one")
    limits = container.resources.limits
    return LaunchCommand(
        argv=argv,
        environment=environment,
        folder=container.working_dir or str(folder),
        stdout=str(log),
        stderr=str(log),
        group=True,
        cpu=float(quantity.parse(limits["cpu"])) if "cpu" in limits else None,
        memory=math.ceil(quantity.parse(limits["memory"])) if "memory" in limits else None,
        blame=BLAME,
    )


def environment_of(pod: RunPod, container: RunContainer, folder: Path) -> dict[str, str]:
    own = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment = own | {"HOSTNAME": pod.name, "HOME": str(folder)}
    if container.env_from:
        raise CannotRun(f"container {container.name}: envFrom is not supported here; write the values under env")
    for variable in container.env:
        environment[variable.name] = _value(pod, variable, environment)
    return environment


def _value(pod: RunPod, variable: Variable, so_far: Mapping[str, str]) -> str:
    source = variable.value_from
    if source is None:
        return expand(variable.value, so_far)
    if source.field_ref is None:
        raise CannotRun(f"env {variable.name}: only values and fieldRef are supported here")
    return field(pod, source.field_ref.field_path)


def field(pod: RunPod, path: str) -> str:
    """A field of the pod, by the names that Kubernetes allows in the downward API."""
    meta = pod.metadata
    if match := SUBSCRIPT.fullmatch(path):
        table = meta.labels if match[1] == "labels" else meta.annotations
        return table.get(match[2], "")
    known = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": ADDRESS,
        "status.hostIP": ADDRESS,
    }
    if path not in known:
        raise CannotRun(f"fieldRef {path!r} is not supported here; supported: {', '.join(known)}")
    return known[path]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace $(NAME) with its value; unknown names remain, and $$ is a dollar sign.

    >>> expand("$(A)-$(B)-$$(A)", {"A": "1"})
    '1-$(B)-$(A)'
    """

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else environment.get(match[2], match[0])

    return REFERENCE.sub(value, text)
