"""Quantiles of a stream from a decayed histogram with logarithmic buckets."""

from __future__ import annotations

import math

RATIO = 1.05  # between the edges of a bucket
LOG_RATIO = math.log(RATIO)
LEAST, MOST = 1e-6, 1e18  # values outside are clipped
MOST_BUCKETS = 64
HALVE_AT = 3600.0  # total weight at which all weights are halved


class LogHistogram:
    """
    >>> histogram = LogHistogram()
    >>> for value in range(1, 101):
    ...     histogram.read(float(value))
    >>> 90 < histogram.quantile(0.95) < 100
    True
    """

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets: dict[int, float] = {}
        self.total = 0.0

    def read(self, value: float) -> None:
        bucket = math.floor(math.log(min(max(value, LEAST), MOST)) / LOG_RATIO)
        self.buckets[bucket] = self.buckets.get(bucket, 0.0) + 1.0
        self.total += 1.0
        if self.total >= HALVE_AT or len(self.buckets) > MOST_BUCKETS:
            self._halve()

    def _halve(self) -> None:
        """Halves all weights; removes the buckets with the lowest weight if there are too many."""
        kept = sorted(self.buckets.items(), key=lambda item: -item[1])[: MOST_BUCKETS // 2 * 2 - 1]
        self.buckets = {bucket: count / 2.0 for bucket, count in kept}
        self.total = sum(self.buckets.values())

    def quantile(self, share: float) -> float:
        """The middle of the bucket that contains the quantile; 0 for an empty histogram."""
        left = share * self.total
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0.0:
                return math.exp((bucket + 0.5) * LOG_RATIO)
        return 0.0
