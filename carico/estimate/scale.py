"""Converts shares of this node to absolute demand: busy threads and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from carico.settings import EstimateSettings, TelemetrySettings
from carico.types import NodeSize

Values = tuple[float, ...]

FIRST_SHARE = 0.5  # first guess of a pod's cost where the node's size is not known, and its maximum otherwise


@dataclass(frozen=True, slots=True)
class Scale:
    """Per resource, absolute."""

    whole: Values  # demand at usage 1
    full: Values  # demand that the node can hold
    first: Values  # expected demand of a pod of a class without measurements

    @property
    def first_share(self) -> Values:
        """The first guess as a share of the node."""
        return tuple([amount / whole for amount, whole in zip(self.first, self.whole, strict=True)])

    @property
    def full_share(self) -> Values:
        """What the node can hold, as a share of it."""
        return tuple([min(amount / whole, 1.0) for amount, whole in zip(self.full, self.whole, strict=True)])

    @staticmethod
    def of_shares(full: Values) -> Scale:
        """For a node whose size is not known: all amounts are shares of it."""
        return Scale((1.0,) * len(full), full, tuple([FIRST_SHARE * end for end in full]))


def scale_of(
    settings: EstimateSettings, resources: tuple[str, ...], size: NodeSize, full_ratio: Values, full: Values | None
) -> Scale:
    """`full` is what the node can hold; None: the share `full_ratio` of its size.

    >>> eight = NodeSize(cores=8, memory_bytes=2.0**34)
    >>> scale_of(EstimateSettings(), ("cpu", "memory"), eight, (0.5, 0.75), None)
    Scale(whole=(16.0, 17179869184.0), full=(8.0, 12884901888.0), first=(1.0, 1073741824.0))
    """
    threads = 2.0 * size.cores
    if isinstance(settings, TelemetrySettings) and settings.cpu == "utilisation":
        threads = size.cores
    sizes = {"cpu": threads, "memory": size.memory_bytes}
    guesses = {"cpu": settings.first_cost_cores, "memory": settings.first_cost_memory}
    whole = tuple([sizes.get(name, 1.0) for name in resources])
    full = full or tuple([end * amount for end, amount in zip(full_ratio, whole, strict=True)])
    first = tuple([
        min(guesses.get(name, FIRST_SHARE * amount), FIRST_SHARE * end)
        for name, amount, end in zip(resources, whole, full, strict=True)
    ])  # fmt: skip
    return Scale(whole, full, first)
