"""The aggregator's metrics, and the model as JSON at /debug/model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from carico.aggregator.service import AggregationService
from carico.http.message import Page
from carico.types import ClusterModel, CostBelief
from carico.wire.codec.checks import REASONS


class AggregatorCounters:
    """Counted as it happens."""

    def __init__(self, registry: CollectorRegistry) -> None:
        about = "Messages from nodes, including refused ones."
        self.exchange = Counter("carico_aggregator_messages", about, registry=registry).inc
        about = "Messages of nodes and other replicas that this replica refused, by reason."
        self._refused = Counter("carico_aggregator_messages_refused", about, ["reason"], registry=registry)
        for reason in REASONS:
            self._refused.labels(reason)  # a rate needs the series to exist before its first event

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()


class AggregatorFigures(Collector):
    """Read from the state at each scrape."""

    def __init__(self, service: AggregationService) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        state = self._service.state
        model, peers = state.model, state.peer_weights(self._service.clock.monotonic())
        yield _gauge("carico_aggregator_model_nodes", "Live nodes in the cluster's model.", model.nodes if model else 0)
        version = model.version if model else 0
        yield _gauge("carico_aggregator_model_version", "Incremented at every change of the model.", version)
        streams = self._service.exchange.streams
        yield _gauge("carico_aggregator_streams", "Nodes that keep a stream to this replica.", streams)
        yield _gauge("carico_aggregator_peers", "Other replicas whose nodes are in the model.", len(peers))
        classes = state.classes
        yield _gauge("carico_aggregator_classes", "Classes of pods whose costs are known.", len(classes.published))
        yield _gauge("carico_aggregator_class_rows", "Class costs reported by this replica's nodes.", classes.rows)
        yield _gauge(
            "carico_aggregator_class_listeners",
            "Schedulers and nodes that receive class costs here.",
            len(self._service.subscribers),
        )
        about = "Dimensions in messages of nodes that this replica does not know and left out."
        yield CounterMetricFamily("carico_aggregator_unknown_dimensions", about, value=state.unknown_dimensions)
        watched = GaugeMetricFamily(
            "carico_aggregator_model_dimension_nodes",
            "Nodes of this replica that watch a resource.",
            labels=["resource"],
        )
        for dimension, nodes in state.dimension_nodes().items():
            watched.add_metric([dimension], nodes)
        yield watched


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def debug_model(service: AggregationService) -> Page:
    """The model as JSON, with age and weight of each node and peer in it."""
    now, state = service.clock.monotonic(), service.state
    nodes, peers = state.node_weights(now).items(), state.peer_weights(now).items()
    shown = {
        "replica": state.replica,
        "model": None if state.model is None else _model(state.model),
        "nodes": {name: {"age_s": round(age, 3), "weight": round(weight, 4)} for name, (age, weight) in nodes},
        "peers": {
            name: {"age_s": round(age, 3), "weight": round(weight, 4), "nodes": count}
            for name, (age, weight, count) in peers
        },
    }
    return Page(HTTPStatus.OK, "application/json", json.dumps(shown, indent=1).encode())


def _model(model: ClusterModel) -> dict[str, Any]:
    return {
        "version": model.version,
        "nodes": model.nodes,
        "dimensions": model.dimensions,
        "gram": model.gram.tolist(),
        "mean_pods": model.mean_pods,
        "cost": None if model.cost is None else _cost(model.dimensions, model.cost),
    }


def _cost(dimensions: tuple[str, ...], cost: CostBelief) -> dict[str, Any]:
    """Per dimension; left out where it is unknown to all nodes."""
    triples = zip(dimensions, cost.mean, cost.variance, strict=True)
    return {name: {"mean": mean, "variance": var} for name, mean, var in triples if math.isfinite(var)}
