"""The properties of the subspace that the signal k relies on, and two oracles: batch SVD and the Gram matrix."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from carico.estimate.paper.subspace import Subspace, damp, decompose, from_gram, merge

sizes = st.integers(1, 5)
usage = st.floats(0, 1, allow_subnormal=False)
weights = st.floats(0, 1)


def telemetry(rows: int) -> st.SearchStrategy[np.ndarray]:
    return st.integers(1, 12).flatmap(lambda columns: arrays(np.float64, (rows, columns), elements=usage))


many = sizes.flatmap(lambda m: st.lists(telemetry(m), min_size=2, max_size=4))
pairs = sizes.flatmap(lambda m: st.tuples(telemetry(m), telemetry(m)))


def gram(columns: np.ndarray) -> np.ndarray:
    return np.asarray(columns @ columns.T)


def close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, atol=1e-9))


def sound(model: Subspace) -> None:
    rank = model.u.shape[1]
    assert rank <= model.u.shape[0]
    # Entries of u₁ that are negative by rounding are set to 0, so orthonormal is meant to the tolerance of ties.
    assert np.allclose(model.u.T @ model.u, np.eye(rank), atol=1e-6)
    assert (np.diff(model.s) <= 1e-12).all()
    assert (model.s >= 0).all()
    assert (model.u[:, 0] >= 0).all()


@given(pairs, weights)
def test_a_merge_is_orthonormal_ordered_and_non_negative_in_the_first_direction(
    parts: tuple[np.ndarray, np.ndarray], weight: float
) -> None:
    a, b = map(decompose, parts)
    sound(a)
    sound(merge(a, b, weight))
    sound(from_gram(gram(parts[0])))


def test_two_directions_of_equal_length_do_not_make_the_first_one_negative() -> None:
    turned = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
    sound(from_gram(turned @ np.eye(2) @ turned.T))
    sound(decompose(np.array([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]])))


@given(pairs, weights)
def test_the_first_value_lies_between_the_energies_of_the_parts(
    parts: tuple[np.ndarray, np.ndarray], weight: float
) -> None:
    one, other = map(decompose, parts)
    merged = merge(one, other, weight)
    first = merged.u[:, 0]
    energies = [float(first @ gram(part) @ first) for part in parts]
    assert min(energies) - 1e-9 <= merged.s[0] ** 2 <= max(energies) + 1e-9


@given(sizes.flatmap(telemetry), st.floats(0, 1))
def test_more_usage_is_a_longer_first_direction(columns: np.ndarray, share: float) -> None:
    more = columns + share * (1.0 - columns)
    assert decompose(columns).s[0] <= decompose(more).s[0] + 1e-12


@given(many)
def test_equal_weights_make_the_order_of_merges_irrelevant(parts: list[np.ndarray]) -> None:
    models = []
    for order in itertools.islice(itertools.permutations(parts), 6):
        model = decompose(order[0])
        for already, part in enumerate(order[1:], start=1):
            model = merge(model, decompose(part), already / (already + 1))
        models.append(model.gram)
    assert all(close(models[0], other) for other in models)


@given(many, st.floats(0.01, 0.99))
def test_incremental_equals_the_batch_svd_and_the_gram_oracle(parts: list[np.ndarray], weight: float) -> None:
    model, weighted, oracle = decompose(parts[0]), parts[0], gram(parts[0])
    for part in parts[1:]:
        model = damp(model, part, weight)
        weighted = np.hstack((np.sqrt(weight) * weighted, np.sqrt(1 - weight) * part))
        oracle = weight * oracle + (1 - weight) * gram(part)
    values = np.linalg.svd(weighted, compute_uv=False)[: len(model.s)]
    assert np.allclose(model.s[: len(values)], values, atol=1e-9)
    assert close(model.gram, oracle)
    assert close(from_gram(oracle).gram, oracle)


def test_it_neither_grows_in_size_nor_in_length() -> None:
    batch = np.full((3, 10), 0.5) / np.sqrt(10)
    model = decompose(batch)
    for _ in range(1000):
        model = damp(model, batch, 0.75)
    assert model.u.shape == (3, 3)
    assert np.isclose(model.s[0], 0.5 * np.sqrt(3))
