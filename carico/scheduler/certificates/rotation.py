"""Which write comes next, so that at every moment every client verifies every certificate in use.

A new authority is *next*: its certificate is in the ConfigMap for `distribution`, long enough for every kubelet and
client to have it, before it *signs*. The one before it is then *retired*: it signs nothing, and stays in the ConfigMap
until the last certificate that it signed has ended. So certificates of both are valid in between, and serving
certificates are renewed at two thirds of their life like at any other time.

Each write is of one object, and `next_write` looks at nothing but what is stored: a leader that was killed between two
writes, or that was replaced, leaves nothing half done. A deleted object is created again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from carico.wire import authorities
from carico.wire.authorities import PemPair, Unusable

RENEW_AT = 2 / 3  # of the life of a serving certificate
SLACK = 86400.0  # s that a retired authority stays longer than what it signed
MOST = 8  # authorities in the ConfigMap
Role = Literal["next", "signs", "retired"]


class StoredAuthority(msgspec.Struct, frozen=True, omit_defaults=True):
    cert: str
    role: Role
    key: str = ""  # of a retired one there is none
    published_at: float = 0.0  # s, Unix time; of a next one: since when it is in the ConfigMap
    until: float = 0.0  # s, Unix time; of a retired one: when it leaves the ConfigMap


class Authorities(msgspec.Struct, frozen=True):
    """What the Secret holds."""

    authorities: tuple[StoredAuthority, ...]
    version: int = 1

    def of(self, role: Role) -> StoredAuthority | None:
        return next((one for one in self.authorities if one.role == role), None)


class Lifetimes(NamedTuple):
    """s"""

    certificate: float
    authority: float
    distribution: float

    @property
    def renew_authority(self) -> float:
        """What is left of an authority when its successor is made."""
        return max(self.authority / 3, 2 * self.certificate + self.distribution)


class Stored(NamedTuple):
    authorities: Authorities | None
    bundle: str | None  # of the ConfigMap
    serving: Mapping[str, PemPair | None]  # by the name of the Secret


class WriteAuthorities(NamedTuple):
    content: Authorities
    why: str


class WriteBundle(NamedTuple):
    content: str
    why: str = "authorities that clients trust"


class WriteServing(NamedTuple):
    secret: str
    content: PemPair
    why: str


Write = WriteAuthorities | WriteBundle | WriteServing


def next_write(stored: Stored, names: Mapping[str, tuple[str, ...]], times: Lifetimes, now: float) -> Write | None:
    """None when nothing is to be done now. `names`: DNS names by the name of the Secret."""
    return next(_writes(stored, names, times, now), None)


def _writes(stored: Stored, names: Mapping[str, tuple[str, ...]], times: Lifetimes, now: float) -> Iterator[Write]:
    """In the order in which they are due; each assumes that those before it were not."""
    known = stored.authorities
    if known is None:
        yield _first(stored, times, now)
        return
    yield from _adopted(known, stored, times, now)
    yield from _published(known, stored, now)
    yield from _rotated(known, stored, names, times, now)
    signs = known.of("signs")
    for secret, wanted in names.items():
        why = _why_issue(stored.serving.get(secret), wanted, known, now)
        if why and signs is not None and _left(signs.cert, now) > 0:
            pair = PemPair(signs.cert, signs.key)
            yield WriteServing(secret, authorities.issue(pair, wanted, now, times.certificate), why)


# --- authorities ---


def _first(stored: Stored, times: Lifetimes, now: float) -> WriteAuthorities:
    """Where nothing is stored; or where the Secret was lost, and servers go on with what the lost authority signed."""
    until = now + times.certificate + SLACK
    in_use = [pair.cert for pair in stored.serving.values() if pair is not None]
    found = _valid(stored.bundle, now)
    found.sort(key=lambda cert: any(authorities.is_issued_by(each, cert) for each in in_use), reverse=True)
    lost = [StoredAuthority(cert, "retired", until=until) for cert in found[: MOST - 1]]
    pair = authorities.new_authority(now, times.authority)
    new = StoredAuthority(pair.cert, "next" if lost else "signs", pair.key)
    return WriteAuthorities(Authorities((new, *lost)), "the Secret was lost" if lost else "there is none yet")


def _adopted(known: Authorities, stored: Stored, times: Lifetimes, now: float) -> Iterator[Write]:
    """An authority of the ConfigMap that signed a certificate in use stays, also if an older Secret was restored."""
    ours = {one.cert for one in known.authorities}
    serving = [pair.cert for pair in stored.serving.values() if pair is not None]
    lost = [
        StoredAuthority(cert, "retired", until=now + times.certificate + SLACK)
        for cert in _valid(stored.bundle, now)
        if cert not in ours and any(authorities.is_issued_by(each, cert) for each in serving)
    ]
    if lost and len(known.authorities) < MOST:
        yield WriteAuthorities(Authorities((*known.authorities, lost[0])), "certificates in use are signed by it")


def _published(known: Authorities, stored: Stored, now: float) -> Iterator[Write]:
    there, wanted = set(authorities.split(stored.bundle or "")), known.authorities
    fresh = [one.cert for one in wanted if _left(one.cert, now) > 0]
    coming = known.of("next")
    if coming is not None and coming.published_at and coming.cert not in there:
        yield WriteAuthorities(_with(known, coming, published_at=0.0), "the ConfigMap lost the next authority")
    if set(fresh) != there:
        yield WriteBundle("".join(fresh))
    if coming is not None and not coming.published_at:
        yield WriteAuthorities(_with(known, coming, published_at=now), "the next authority is in the ConfigMap")


def _rotated(
    known: Authorities, stored: Stored, names: Mapping[str, tuple[str, ...]], times: Lifetimes, now: float
) -> Iterator[Write]:
    signs, coming = known.of("signs"), known.of("next")
    left = _left(signs.cert, now) if signs is not None else 0.0
    if coming is None and left < times.renew_authority:
        pair = authorities.new_authority(now, times.authority)
        why = "the present authority ends" if signs is not None else "none signs"
        yield WriteAuthorities(Authorities((*known.authorities, StoredAuthority(pair.cert, "next", pair.key))), why)
    if coming is not None and coming.published_at:
        if now >= coming.published_at + times.distribution:
            yield WriteAuthorities(_promoted(known, stored, times, now), "the next authority is known everywhere")
        elif left <= 0 and _cannot_wait(stored, names, known, coming.published_at + times.distribution, now):
            yield WriteAuthorities(_promoted(known, stored, times, now), "a certificate is needed and none else signs")
    kept = tuple(one for one in known.authorities if one.role != "retired" or min(one.until, _end(one.cert)) > now)
    if kept != known.authorities:
        yield WriteAuthorities(Authorities(kept), "all that a retired authority signed has ended")


def _cannot_wait(
    stored: Stored, names: Mapping[str, tuple[str, ...]], known: Authorities, until: float, now: float
) -> bool:
    """Whether a server has no certificate, or none that lasts until the next authority may sign."""
    for secret, wanted in names.items():
        pair = stored.serving.get(secret)
        if pair is None or _why_unusable(pair, wanted, known, now) or _end(pair.cert) <= until:
            return True
    return False


def _promoted(known: Authorities, stored: Stored, times: Lifetimes, now: float) -> Authorities:
    """The next authority signs; the one before it stays as long as something that it signed is valid."""
    ends = [_end(pair.cert) for pair in stored.serving.values() if pair is not None]
    until = max([now + times.certificate, *ends]) + SLACK
    changed = []
    for one in known.authorities:
        if one.role == "signs":
            changed.append(StoredAuthority(one.cert, "retired", until=until))
        elif one.role == "next":
            changed.append(StoredAuthority(one.cert, "signs", one.key))
        else:
            changed.append(one)
    return Authorities(tuple(changed))


def _with(known: Authorities, one: StoredAuthority, *, published_at: float) -> Authorities:
    changed = msgspec.structs.replace(one, published_at=published_at)
    return Authorities(tuple(changed if each is one else each for each in known.authorities))


# --- certificates ---


def _why_issue(pair: PemPair | None, wanted: tuple[str, ...], known: Authorities, now: float) -> str:
    """Why a serving certificate is to be made; empty if it is good."""
    if pair is None:
        return "there is none"
    if why := _why_unusable(pair, wanted, known, now):
        return why
    return "it ends" if now >= authorities.facts(pair.cert).at(RENEW_AT) else ""


def _why_unusable(pair: PemPair, wanted: tuple[str, ...], known: Authorities, now: float) -> str:
    if not authorities.is_pair(pair):
        return "certificate and key do not fit together"
    found = authorities.facts(pair.cert)
    if not set(wanted) <= found.names:
        return "names are missing in it"
    if not any(authorities.is_issued_by(pair.cert, one.cert) for one in known.authorities):
        return "no known authority signed it"
    return "it has ended" if now >= found.ends_at else ""


def _valid(bundle: str | None, now: float) -> list[str]:
    """The certificates of a bundle that have not ended, those that end last first."""
    found = [cert for cert in authorities.split(bundle or "") if _left(cert, now) > 0]
    return sorted(found, key=_end, reverse=True)


def _end(cert: str) -> float:
    try:
        return authorities.facts(cert).ends_at
    except Unusable:
        return 0.0


def _left(cert: str, now: float) -> float:
    return _end(cert) - now
