"""`merge: running`, the report's rule, kept for comparison: the model is updated by each message as it comes.

    G ← (N−1)/N · G + 1/N · Gᵢ,  N = live nodes

This is the subspace merge of the report at full rank. It depends on the order of the messages, and a node that sends
twice as often counts twice.
"""

from __future__ import annotations

import numpy as np

from carico.aggregator.merge import Aggregate
from carico.aggregator.node_table import M
from carico.types import Matrix, Vector


class IncrementalMerge:
    def __init__(self) -> None:
        self._gram: Matrix = np.zeros((M, M))
        self._has: Matrix = np.zeros((M, M))

    def take(self, gram: Vector, has: Vector, nodes: int) -> None:
        """One node's message; `gram` is a row of M·M values, `has` marks the M dimensions that it watches."""
        both = np.outer(has, has)
        share = np.where(self._has > 0, 1.0 / max(nodes, 1), 1.0) * both  # a first value is taken over
        self._gram += share * (gram.reshape(M, M) - self._gram)
        self._has = np.maximum(self._has, both)

    def instead_of(self, aggregate: Aggregate) -> Aggregate:
        """The aggregate of the same nodes, with this model in it."""
        return aggregate._replace(gram=self._gram * (aggregate.gram_weight > 0))
