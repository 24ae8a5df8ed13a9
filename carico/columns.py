"""Arrays that grow: one column per figure, one row per node or per pod."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


def grown(array: NDArray[Scalar], length: int, fill: Any = 0, *, axis: int = 0) -> NDArray[Scalar]:
    """The array with at least `length` rows; doubled, so that growing row by row has amortized constant cost.

    >>> grown(np.zeros(2, np.int32), 3, -1).tolist()
    [0, 0, -1, -1]
    >>> grown(np.zeros((2, 1)), 2, np.inf, axis=1).tolist()
    [[0.0, inf], [0.0, inf]]
    """
    have = array.shape[axis]
    if have >= length:
        return array
    shape = list(array.shape)
    shape[axis] = max(length, 2 * have)
    wider = np.full(shape, fill, dtype=array.dtype)
    wider[(slice(None),) * axis + (slice(have),)] = array
    return wider
