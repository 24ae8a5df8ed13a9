"""Builders of messages, and a pair of certificates that is made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from carico.settings import ServerTlsFiles, TlsFiles
from carico.testing import make_estimate
from carico.types import ClassCost, ClassKey, CostBelief, LocalModel, NodeReport, NodeSize
from carico.wire.certificates import Authority


class Tls(NamedTuple):
    server: ServerTlsFiles  # demands client certificates
    node: Callable[[str], TlsFiles]


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder: Path = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    server = authority.issue("carico:aggregator", "localhost", "127.0.0.1")

    def node(name: str) -> TlsFiles:
        pair = authority.issue_node(name)
        return TlsFiles(tls_ca=authority.cert, tls_cert=pair.cert, tls_key=pair.key)

    return Tls(ServerTlsFiles(client_ca=authority.cert, tls_cert=server.cert, tls_key=server.key), node)


@pytest.fixture(scope="session")
def local_model() -> Callable[..., LocalModel]:
    def build(**changes: Any) -> LocalModel:
        fields: dict[str, Any] = {
            "node": "n1",
            "start_id": 7,
            "sequence": 1,
            "size": NodeSize(cores=4, memory_bytes=2.0**33),
            "dimensions": ("cpu", "memory"),
            "basis": np.array([[0.3, 0.0], [0.4, 0.0]]),
            "baseline": (0.2, 2.0**30),
            "cost": CostBelief((0.5, 2.0**28), (0.01, 2.0**50)),
            "pods": 3,
            "samples": 100,
        }
        return LocalModel(**(fields | changes))

    return build


@pytest.fixture(scope="session")
def class_cost() -> Callable[..., ClassCost]:
    def build(name: str = "web", **changes: Any) -> ClassCost:
        fields: dict[str, Any] = {
            "key": ClassKey("team-a", f"team-a/{name}", "5d9c"),
            "pods": 3,
            "weight": 7.5,
            "mean": (0.5, 2.0**28),
            "variance": (0.01, 2.0**50),
            "high": (0.7, 2.0**29),
            "use_high": (0.4, 2.0**28),
            "ramp": 4.0,
        }
        return ClassCost(**(fields | changes))

    return build


@pytest.fixture(scope="session")
def node_report() -> Callable[..., NodeReport]:
    def build(
        *,
        pod_capacity: float = 10.0,
        pods: int = 2,
        at: float = 100.0,
        room: tuple[float, ...] = (),
        **changes: Any,
    ) -> NodeReport:
        estimate = make_estimate(
            at=at,
            usage=(0.3, 0.4),
            signal_k=2.5,
            baseline_ratio=(0.1, 0.2),
            cost_ratio=(0.05, 0.02),
            baseline_scalar=20.0,
            cost_scalar=0.05,
            pods=pods,
            pod_capacity=pod_capacity,
            room=room,
        )
        fields: dict[str, Any] = {
            "node": "n1",
            "start_id": 7,
            "sequence": 0,
            "sampled_at": 1.7e9,
            "age": 0.0,
            "dimensions": ("cpu", "memory"),
            "estimate": estimate,
            "churn": False,
            "cost_absolute": (0.2, 2.0**28),
            "counted": frozenset({"uid-1", "uid-2"}),
            "finished": frozenset(),
            "agent_version": "0.1.0",
        }
        return NodeReport(**(fields | changes))

    return build
