"""Classes in the saved state: absolute amounts, valid on a node of any size. Running pods are saved as ended ones."""

from __future__ import annotations

import math

import msgspec

from carico.estimate.class_stats import LONGEST, ClassStats, WeightedSpread
from carico.estimate.profile import EDGES
from carico.types import ClassKey

Triple = tuple[float, float, float]
GREATEST = 1e24  # of any amount; its square is still finite


class SavedResource(msgspec.Struct, array_like=True):
    """One resource of one class."""

    ended: Triple  # pods, mean, variance
    tops: Triple
    highest: float
    queueing: float
    changes: list[float]
    pods: list[float]
    uses: list[tuple[int, float]]  # bucket, readings


class SavedClass(msgspec.Struct, array_like=True):
    """One class."""

    key: tuple[str, str, str]
    recent: float
    resources: list[SavedResource]


def save(class_: ClassStats) -> SavedClass:
    key = (class_.key.namespace, class_.key.family, class_.key.revision)
    return SavedClass(key, class_.recent, [_resource(class_, i) for i in range(len(class_.ended))])


def _resource(class_: ClassStats, i: int) -> SavedResource:
    profile = class_.profiles[i]
    return SavedResource(
        ended=_triple(class_.spreads[i]),
        tops=_triple(class_.tops[i]),
        highest=class_.highest[i],
        queueing=class_.queueing[i],
        changes=list(profile.changes),
        pods=list(profile.pods),
        uses=list(class_.uses[i].buckets.items()),
    )


def restore(saved: SavedClass, peaks: tuple[bool, ...], at: float) -> ClassStats:
    """Raises ValueError if the values are impossible for a class."""
    class_ = ClassStats(ClassKey(*saved.key), peaks, at)
    if len(saved.resources) != len(peaks) or not 0.0 <= saved.recent < GREATEST:
        raise ValueError(_refusal(saved))
    class_.recent = saved.recent
    for i, one in enumerate(saved.resources):
        if not _makes_sense(one):
            raise ValueError(_refusal(saved))
        class_.ended[i], class_.tops[i] = WeightedSpread(*one.ended), WeightedSpread(*one.tops)
        class_.highest[i], class_.queueing[i] = one.highest, one.queueing
        class_.profiles[i].changes, class_.profiles[i].pods = one.changes, one.pods
        class_.uses[i].buckets = dict(one.uses)
        class_.uses[i].total = sum(count for _, count in one.uses)
    class_.refresh()
    return class_


def _triple(spread: WeightedSpread) -> Triple:
    return spread.weight, spread.mean, spread.variance


def _makes_sense(one: SavedResource) -> bool:
    plain = (*one.ended[:2], *one.tops[:2], one.highest, *one.pods, *[count for _, count in one.uses])
    fine = all(0.0 <= x < GREATEST for x in plain) and all(abs(x) < GREATEST for x in one.changes)
    squares = all(0.0 <= x < GREATEST**2 for x in (one.ended[2], one.tops[2]))
    short = len(one.changes) == len(one.pods) <= len(EDGES) and len(one.uses) <= 64
    near = all(abs(bucket) < 2000 for bucket, _ in one.uses)
    bounded = max(one.ended[0], one.tops[0]) <= LONGEST and 1.0 <= one.queueing <= 2.0
    return fine and squares and short and near and bounded


def _refusal(saved: SavedClass) -> str:
    name = "/".join(saved.key)[:80]
    return f"saved state: 'classes' has invalid values of {name!r}; delete the state file to start fresh"


def encode(classes: list[ClassStats]) -> list[object]:
    """Serialisable as JSON, the least recently used class first."""
    found: list[object] = msgspec.to_builtins([save(class_) for class_ in classes])
    return found


def decode(state: object, peaks: tuple[bool, ...], at: float, most: int) -> list[ClassStats]:
    try:
        saved = msgspec.convert(state, list[SavedClass], strict=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"saved state: 'classes': {error}; delete the state file to start fresh") from None
    if len(saved) > most:
        raise ValueError(f"saved state: 'classes' holds {len(saved)}, not at most {most}; delete the state file")
    return [restore(one, peaks, at) for one in saved if math.isfinite(one.recent)]
