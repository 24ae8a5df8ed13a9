"""The stages that a setting chooses, by name."""

from __future__ import annotations

from carico.estimate.dual import Dual
from carico.estimate.estimator import Estimator
from carico.estimate.joint import Joint
from carico.estimate.resource import Resource
from carico.estimate.signal import (
    REPORT_BASELINE,
    REPORT_COST,
    TRACE_BASELINE,
    TRACE_COST,
    DifferenceSlope,
    DualSlope,
    JointSlope,
    Signal,
)
from carico.estimate.smooth import ChangeAware, DynamicEma, Smoother
from carico.settings import EstimateSettings


def make_smoother(settings: EstimateSettings, size: int, rate_hz: float) -> Smoother:
    """
    >>> type(make_smoother(EstimateSettings(smoothing="ema"), 2, 10.0)).__name__
    'DynamicEma'
    """
    return DynamicEma(size) if settings.smoothing == "ema" else ChangeAware(size, rate_hz)


def make_estimator(settings: EstimateSettings, dimensions: tuple[str, ...], full: tuple[float, ...]) -> Estimator:
    """
    >>> make_estimator(EstimateSettings(estimator="signal-joint"), ("cpu",), (0.99,)).trace
    True
    """
    limit = settings.capacity_limit
    match settings.estimator:
        case "resource-joint":
            return Resource(Joint, dimensions, full, limit)
        case "resource":
            return Resource(Dual, dimensions, full, limit)
        case "signal":
            return Signal(DualSlope(REPORT_BASELINE, REPORT_COST), trace=False, limit=limit)
        case "signal-trace":
            return Signal(DualSlope(TRACE_BASELINE, TRACE_COST), trace=True, limit=limit)
        case "signal-joint":
            return Signal(JointSlope(), trace=True, limit=limit)
        case "signal-difference":
            return Signal(DifferenceSlope(), trace=True, limit=limit)
        case other:
            raise ValueError(f"no estimator is called {other!r}")
