"""The table of binaries: the source of each, and the cost of its first build.

Seconds are for a cold Go cache on two busy cores, in this order: the first binary of a module includes the packages
that the others share.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).with_name("tools")
KUBERNETES = "v1.36.3"
_VERSION = "k8s.io/component-base/version"
# Without a stamp, the API server's version would be v0.0.0.
_STAMP = f"-X {_VERSION}.gitVersion={KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
FLAGS = ("-trimpath", "-ldflags", f"-s -w {_STAMP}")


@dataclass(frozen=True)
class Tool:
    name: str
    module: str
    package: str
    seconds: int
    megabytes: int
    flags: tuple[str, ...] = ()


def _kubernetes(name: str, seconds: int, megabytes: int) -> Tool:
    return Tool(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", seconds, megabytes)


def _containerd(name: str, seconds: int, megabytes: int) -> Tool:
    tags = ("-tags", "no_btrfs no_devmapper no_zfs")
    return Tool(name, "containerd", f"github.com/containerd/containerd/v2/cmd/{name}", seconds, megabytes, tags)


_ALL = (
    Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3", 78, 25),
    _kubernetes("kube-apiserver", 316, 110),
    _kubernetes("kube-controller-manager", 125, 100),
    _kubernetes("kube-scheduler", 7, 75),
    _kubernetes("kubectl", 28, 60),
    Tool("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", 126, 65),
    _kubernetes("kubelet", 26, 90),
    _kubernetes("kube-proxy", 17, 75),
    _containerd("containerd", 77, 45),
    _containerd("containerd-shim-runc-v2", 6, 15),
    _containerd("ctr", 6, 25),
    Tool("coredns", "coredns", "github.com/coredns/coredns", 174, 82),
)
TOOLS = {tool.name: tool for tool in _ALL}

CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE = ("kubelet", "kube-proxy", "coredns")
