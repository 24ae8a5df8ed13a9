"""Creates the smoother and the estimator that the settings name."""

from __future__ import annotations

from carico.estimate.by_class import ByClass
from carico.estimate.dual import Dual
from carico.estimate.estimator import Estimator
from carico.estimate.joint import Joint
from carico.estimate.paper.signal_estimators import (
    REPORT_BASELINE,
    REPORT_COST,
    TRACE_BASELINE,
    TRACE_COST,
    DifferenceSlope,
    DualSlope,
    JointSlope,
    Signal,
)
from carico.estimate.resource import ResourceFit
from carico.estimate.scale import Scale
from carico.estimate.smooth import ChangeAware, DynamicEma, Smoother
from carico.settings import EstimateSettings


def make_smoother(settings: EstimateSettings, size: int, rate_hz: float) -> Smoother:
    """
    >>> type(make_smoother(EstimateSettings(smoothing="ema"), 2, 10.0)).__name__
    'DynamicEma'
    """
    return DynamicEma(size, rate_hz) if settings.smoothing == "ema" else ChangeAware(size, rate_hz)


def make_estimator(
    settings: EstimateSettings, dimensions: tuple[str, ...], full: tuple[float, ...], scale: Scale | None = None
) -> Estimator:
    """
    >>> make_estimator(EstimateSettings(estimator="signal-joint"), ("cpu",), (0.99,)).trace
    True
    """
    limit = settings.capacity_limit
    scale = scale or Scale.of_shares(full)
    match settings.estimator:
        case "class":
            return ByClass(dimensions, scale, limit, _joint(dimensions, full, limit, scale))
        case "resource-joint":
            return _joint(dimensions, full, limit, scale)
        case "resource":
            return ResourceFit([Dual() for _ in dimensions], dimensions, full, limit)
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


def _joint(dimensions: tuple[str, ...], full: tuple[float, ...], limit: float, scale: Scale) -> ResourceFit:
    return ResourceFit([Joint(share) for share in scale.first_share], dimensions, full, limit)
