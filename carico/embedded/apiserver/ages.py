"""Ages as kubectl shows them: `45s`, `3m20s`, `26h`, `3d`."""

from __future__ import annotations

from datetime import datetime


def since(moment: str | None, now: float, until: str | None = None) -> str:
    """
    >>> since("1970-01-01T00:00:10Z", 55.0), since(None, 0.0)
    ('45s', '<unknown>')
    """
    if not moment:
        return "<unknown>"
    end = datetime.fromisoformat(until).timestamp() if until else now
    return human(end - datetime.fromisoformat(moment).timestamp())


def human(seconds: float) -> str:
    """
    >>> human(119), human(200), human(660), human(12000), human(93600), human(3e5), human(1e8)
    ('119s', '3m20s', '11m', '3h20m', '26h', '3d11h', '3y62d')
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(0, whole)}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, rest = divmod(hours, 24)
    if days < 8:
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 2 * 365:
        return f"{days}d"
    years, rest = divmod(days, 365)
    if years < 8:
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"
