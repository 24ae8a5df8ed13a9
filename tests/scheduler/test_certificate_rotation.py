"""The rotation of authorities and certificates over years of simulated time, with leaders that stop at any write.

At every moment every client that follows the ConfigMap must verify every certificate that a server may be using,
whether kubelets show either of them now or up to `LAG` later.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico.scheduler.certificates import rotation
from carico.scheduler.certificates.rotation import (
    Authorities,
    Lifetimes,
    Stored,
    WriteAuthorities,
    WriteBundle,
    WriteServing,
    next_write,
)
from carico.wire import authorities
from carico.wire.authorities import PemPair

HOUR, DAY = 3600.0, 86400.0
TIMES = Lifetimes(certificate=30 * DAY, authority=365 * DAY, distribution=DAY)
NAMES = {"a-tls": ("a", "a.ns.svc"), "s-tls": ("s", "s.ns.svc")}
LAG = 20 * HOUR  # of kubelets, clients and a standby's reads; less than the distribution
SKEW = 0.4 * HOUR  # of any clock
START = 1.8e9
_HEAD, _TAIL = "-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n"
NO_CERTIFICATES = ("x", _HEAD, f"{_HEAD}MIIB\n", f"{_HEAD}x\n{_TAIL}", f"{_HEAD}MIIB\n{_TAIL}", _TAIL + _HEAD)


class History:
    """The contents of one object, with the times of their writing."""

    def __init__(self) -> None:
        self._found: list[tuple[float, object]] = []

    def put(self, now: float, content: object) -> None:
        self._found.append((now, content))

    def within(self, now: float) -> Iterator[object]:
        """What a reader may have before itself now. A kubelet keeps what was deleted."""
        for number, (_, content) in enumerate(self._found):
            after = self._found[number + 1][0] if number + 1 < len(self._found) else now
            if after >= now - LAG:
                yield content


class World:
    def __init__(self) -> None:
        self.now = START
        self.secret: Authorities | None = None
        self.bundle: str | None = None
        self.serving: dict[str, PemPair | None] = dict.fromkeys(NAMES)
        self.trusted, self.used = History(), {name: History() for name in NAMES}
        self.writes = 0

    def stored(self) -> Stored:
        return Stored(self.secret, self.bundle, dict(self.serving))

    def round(self, skew: float = 0.0, writes: int = 99) -> int:
        """A leader's round, which is killed after some writes. Returns how many it did."""
        for done in range(writes):
            write = next_write(self.stored(), NAMES, TIMES, self.now + skew)
            if write is None:
                return done
            self._do(write)
            self.check()
        return writes

    def _do(self, write: rotation.Write) -> None:
        self.writes += 1
        assert self.writes < 5000
        if isinstance(write, WriteAuthorities):
            self.secret = write.content
        elif isinstance(write, WriteBundle):
            self.bundle = write.content
            self.trusted.put(self.now, write.content)
        else:
            self.serving[write.secret] = write.content
            self.used[write.secret].put(self.now, write.content)

    def pass_time(self, seconds: float) -> None:
        """In steps in which a certificate may end."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 12 * HOUR)
            self.check()

    def check(self) -> None:
        for name, history in self.used.items():
            for pair in history.within(self.now):
                assert isinstance(pair, PemPair)
                found = authorities.facts(pair.cert)
                assert found.begins_at <= self.now - SKEW, "a client's clock may be behind"
                assert self.now + SKEW < found.ends_at or pair is not self.serving[name], "it ended while in use"
                for bundle in self.trusted.within(self.now):
                    known = authorities.split(str(bundle))
                    assert any(_verifies(pair.cert, one, self.now) for one in known), f"{name} is not trusted"


def _verifies(cert: str, authority: str, now: float) -> bool:
    return authorities.is_issued_by(cert, authority) and authorities.facts(authority).ends_at > now


def signer(world: World) -> object:
    return world.secret.of("signs") if world.secret is not None else None


def test_the_first_round_makes_everything_and_the_second_nothing() -> None:
    world, order = World(), []
    while (write := next_write(world.stored(), NAMES, TIMES, world.now)) is not None:
        order.append(type(write))
        world._do(write)
    assert order == [WriteAuthorities, WriteBundle, WriteServing, WriteServing]
    assert world.round() == 0
    pair = world.serving["a-tls"]
    assert pair is not None
    assert authorities.facts(pair.cert).names == {"a", "a.ns.svc"}


def test_ten_years_without_an_incident() -> None:
    world = World()
    signers = set()
    for _ in range(10 * 73):
        world.round()
        signers.add(signer(world))
        world.pass_time(5 * DAY)
    assert 13 <= len(signers) <= 17  # each signs for two thirds of its year
    assert world.secret is not None
    assert all(one.key == "" for one in world.secret.authorities if one.role == "retired")
    assert len(authorities.split(world.bundle or "")) <= 3


INCIDENTS = st.sampled_from(
    [
        "authorities",
        "bundle",
        "a-tls",
        "s-tls",
        "older authorities",
        "other bundle",
        "other certificate",
        "none",
        "none",
    ]
)
STEPS = st.lists(
    st.tuples(
        st.floats(0.1 * HOUR, 2 * DAY), INCIDENTS, st.integers(0, 4), st.floats(-SKEW, SKEW), st.integers(0, 2**32)
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(age=st.floats(0, 700 * DAY), steps=STEPS)
def test_every_client_verifies_every_server_at_every_moment(age: float, steps: list[Any]) -> None:
    world = World()
    world.round()
    _grow_older(world, age)
    killed, incidents, before = 0, 0, world.secret
    for pause, incident, writes, skew, seed in steps:
        world.pass_time(pause)
        if incident != "none" and incidents < 5 and signer(world) is not None and world.round() == 0:
            incidents += _happens(world, incident, before, random.Random(seed))
        killed = killed + 1 if writes < 4 else 0
        world.round(skew, 99 if killed > 3 else writes)
        if seed % 3 == 0:
            before = world.secret
    for _ in range(4):
        world.round()
        world.pass_time(DAY)
    assert world.round() == 0 or world.round() == 0
    assert signer(world) is not None
    for name, pair in world.serving.items():
        assert pair is not None, name
        assert authorities.is_pair(pair)


def _grow_older(world: World, age: float) -> None:
    end = world.now + age
    while world.now < end:
        world.pass_time(min(5 * DAY, end - world.now))
        world.round()


def _happens(world: World, incident: str, before: Authorities | None, rng: random.Random) -> int:
    """Something that a user, a controller or a restored backup does to one object."""
    if incident == "authorities":
        world.secret = None
    elif incident == "older authorities":
        world.secret = before
    elif incident == "bundle":
        world.bundle = None  # kubelets keep the last one
    elif incident == "other bundle":
        world.bundle = rng.choice(
            ["", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", world.bundle or ""]
        )
        world.bundle += authorities.new_authority(world.now, DAY).cert
    elif incident == "other certificate":
        world.serving["a-tls"] = rng.choice([PemPair("", ""), PemPair("x", "y"), world.serving["s-tls"]])
    else:
        world.serving[incident] = None
    return 1


def test_an_unknown_authority_is_not_kept() -> None:
    """Neither one that someone added to the ConfigMap, nor one that signed what someone put into a Secret."""
    world = World()
    world.round()
    stranger = authorities.new_authority(world.now, DAY)
    world.bundle = (world.bundle or "") + stranger.cert
    world.round()
    assert stranger.cert not in (world.bundle or "")
    forged = authorities.issue(stranger, NAMES["a-tls"], world.now, DAY)
    world.serving["a-tls"] = forged
    world.round()
    assert world.serving["a-tls"] != forged


def test_an_older_secret_that_is_restored_takes_no_authority_from_certificates_in_use() -> None:
    world = World()
    world.round()
    older = world.secret
    while signer(world) is None or older is None or signer(world) == older.of("signs"):
        world.pass_time(5 * DAY)
        world.round()
    for _ in range(16):  # until all certificates are signed by the second authority
        world.round()
        world.pass_time(5 * DAY)
    world.secret = older
    for _ in range(20):
        world.round()
        world.pass_time(5 * DAY)
    assert world.round() == 0


def test_after_the_loss_of_the_key_nothing_is_signed_until_the_next_authority_is_known() -> None:
    world = World()
    world.round()
    old = dict(world.serving)
    world.secret = None
    world.round()
    assert world.serving == old
    assert signer(world) is None
    world.pass_time(0.9 * DAY)
    world.round()
    assert signer(world) is None
    world.pass_time(0.2 * DAY)
    world.round()
    assert signer(world) is not None
    world.pass_time(21 * DAY)
    world.round()
    assert world.serving != old


def test_a_server_without_a_certificate_does_not_wait_for_the_next_authority() -> None:
    world = World()
    world.round()
    world.secret, world.serving["a-tls"] = None, None
    while (write := next_write(world.stored(), NAMES, TIMES, world.now)) is not None:
        world._do(write)  # without the check: those that have not read the ConfigMap again have to
    assert world.serving["a-tls"] is not None
    assert signer(world) is not None


def test_very_short_lifetimes_lead_to_no_endless_writing() -> None:
    world, times = World(), Lifetimes(60.0, 600.0, 1.0)
    for _ in range(200):
        for _ in range(10):
            write = next_write(world.stored(), NAMES, times, world.now)
            if write is None:
                break
            world._do(write)
        else:
            pytest.fail("ten writes at once")
        world.now += 10


def test_shorter_lifetimes_take_no_authority_from_certificates_in_use() -> None:
    world = World()
    world.round()
    shorter = Lifetimes(HOUR, DAY, 60.0)
    for _ in range(100):
        while (write := next_write(world.stored(), NAMES, shorter, world.now)) is not None:
            world._do(write)
        for bundle in [world.bundle]:
            for pair in world.serving.values():
                assert pair is not None
                assert any(_verifies(pair.cert, one, world.now) for one in authorities.split(str(bundle)))
        world.now += DAY / 4


@pytest.mark.parametrize(
    "text", ["", "x", "-----BEGIN CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END"]
)
def test_what_is_no_certificate(text: str) -> None:
    assert authorities.split(text) == []
    assert not authorities.is_pair(PemPair(text, text))
    assert not authorities.is_issued_by(text, text)
