"""The local model: direction and strength of the recent workload on this node.

A subspace (U, Σ) represents the Gram matrix G = UΣ²Uᵀ of the telemetry. Two are merged by the thin singular value
decomposition of [√w·U_AΣ_A, √(1−w)·U_BΣ_B]; because the weights under the roots sum to 1, σ₁² lies between the
energies of the parts along u₁ and does not grow with time. u₁ is the direction of the recent workload, σ₁ its root mean
square. Usage is never negative, so u₁ can be chosen non-negative (Perron–Frobenius theorem), which fixes its sign. The
signs of the other columns are chosen so that their entries sum to more than 0.

M. Brand, Fast low-rank modifications of the thin SVD, https://doi.org/10.1016/j.laa.2005.07.021
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from carico.estimate.saved import rows
from carico.types import Matrix, Vector

# Two singular values within this share of each other are equal: their directions are then arbitrary.
TIE = 1e-7


@dataclass(frozen=True, slots=True)
class Subspace:
    u: Matrix  # m × r, orthonormal columns
    s: Vector  # r, falling, ≥ 0

    @property
    def basis(self) -> Matrix:
        """U·Σ."""
        return self.u * self.s

    @property
    def gram(self) -> Matrix:
        return self.basis @ self.basis.T


def decompose(columns: Matrix) -> Subspace:
    """The subspace of a matrix of columns, with at most m directions.

    >>> decompose(np.array([[0.3, 0.3], [0.4, 0.4]])).basis[:, 0].round(6).tolist()
    [0.424264, 0.565685]
    """
    u, s, _ = np.linalg.svd(columns, full_matrices=False)
    return Subspace(_signed(u, s), s)


def merge(a: Subspace, b: Subspace, weight: float) -> Subspace:
    """`weight` of a and the rest of b."""
    return damp(a, b.basis, weight)


def damp(past: Subspace, columns: Matrix, weight: float) -> Subspace:
    """`weight` of the past and the rest of new columns."""
    parts = (math.sqrt(weight) * past.basis, math.sqrt(1.0 - weight) * columns)
    return decompose(np.concatenate(parts, axis=1))


def from_gram(gram: Matrix) -> Subspace:
    """The subspace that has this Gram matrix.

    >>> from_gram(np.array([[0.09, 0.0], [0.0, 0.16]])).s.tolist()
    [0.4, 0.3]
    """
    values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
    s = np.sqrt(np.maximum(values[::-1], 0.0))
    return Subspace(_signed(vectors[:, ::-1], s), s)


def save(model: Subspace | None) -> list[list[float]]:
    """One row per direction: σ, then u; none for no model."""
    return [] if model is None else [[sigma, *u] for sigma, u in zip(model.s.tolist(), model.u.T.tolist(), strict=True)]


def restore(state: Mapping[str, object], key: str, size: int, longest: float) -> Subspace | None:
    """What was saved under `key`; `longest` is the greatest plausible σ."""
    saved = np.array(rows(state, key, size + 1, size, least=-1.001, most=longest), dtype=np.float64)
    if not saved.size:
        return None
    model = Subspace(saved[:, 1:].T, saved[:, 0])
    if not np.allclose(model.u.T @ model.u, np.eye(len(saved)), atol=1e-6) or (model.s < 0).any():
        raise ValueError(f"saved state: {key!r} is not a subspace; delete the state file to start fresh")
    return model


def _signed(u: Matrix, s: Vector) -> Matrix:
    """Signs every column so that its sum is ≥ 0; for non-negative data the first one has no negative entry."""
    turned: Matrix = u * np.where(u.sum(axis=0) < 0.0, -1.0, 1.0)
    least = turned[:, 0].min()
    if least < -TIE:
        turned = _untied(turned, s)
    if least < 0.0:
        first = turned[:, 0]
        first[(first < 0.0) & (first >= -TIE)] = 0.0  # rounding
    return turned


def _untied(u: Matrix, s: Vector) -> Matrix:
    """If the largest singular values are equal, u₁ is arbitrary in their span: takes the vector nearest to (1, …, 1).

    For non-negative data that one is non-negative. The others are made orthogonal to it again.
    """
    tied = int((s >= s[0] * (1.0 - TIE)).sum())
    first = u[:, :tied] @ u[:, :tied].sum(axis=0)
    if tied < 2 or first.min() < -TIE or not first.any():
        return u
    q, _ = np.linalg.qr(np.column_stack((first, u[:, :tied])))
    return np.column_stack((first / np.linalg.norm(first), q[:, 1:tied], u[:, tied:]))
