"""Kubernetes quantities: `100m`, `1.5Gi`, `2e3`.

Amounts are exact: they are kept as fractions until a whole number is requested, and then rounded up, as Kubernetes
does: a pod that requests a tenth of a byte occupies one. Exponents are clamped to what makes a
difference to an amount between 1e-30 and 1e30.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+|[numkMGTPE]?)")

LONGEST = 100  # characters; what the API server writes has at most a third of that
SPAN = 30  # digits before and after the point beyond which nothing differs


@lru_cache(maxsize=65536)
def parse(text: str) -> Fraction:
    """The exact amount.

    >>> parse("100m"), parse("1.5Ki"), parse("2e3"), parse("1E")
    (Fraction(1, 10), Fraction(1536, 1), Fraction(2000, 1), Fraction(1000000000000000000, 1))
    """
    form = _FORM.fullmatch(text) if len(text) <= LONGEST else None
    if form is None:
        raise ValueError(f"{text[:LONGEST]!r} is not a quantity; write it like 100m, 1.5Gi or 2e3")
    number, suffix = form.groups()
    if suffix in _BINARY:
        return Fraction(number) * _BINARY[suffix]
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    most = SPAN + len(number)
    return Fraction(number) * Fraction(10) ** max(-most, min(most, exponent))


@lru_cache(maxsize=65536)
def whole(text: str) -> int:
    """The amount in whole units, rounded away from zero.

    >>> whole("1"), whole("100m"), whole("1.1Ki"), whole("-100m")
    (1, 1, 1127, -1)
    """
    return ceiling(parse(text))


def ceiling(amount: Fraction) -> int:
    """The next whole number, away from zero.

    >>> ceiling(Fraction(3, 2)), ceiling(Fraction(-3, 2)), ceiling(Fraction(2))
    (2, -2, 2)
    """
    magnitude = -(-abs(amount.numerator) // amount.denominator)
    return magnitude if amount >= 0 else -magnitude


def as_cores(cores: float) -> str:
    """An amount of processor time as kubectl shows it, in thousandths.

    >>> as_cores(1.25), as_cores(2)
    ('1250m', '2000m')
    """
    return f"{round(cores * 1000)}m"


def as_bytes(amount: float) -> str:
    """An amount of memory in whole MiB.

    >>> as_bytes(2**30), as_bytes(1.9 * 2**20)
    ('1024Mi', '1Mi')
    """
    return f"{int(amount) >> 20}Mi"
