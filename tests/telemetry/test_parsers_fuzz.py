"""Whatever the bytes: a parser answers, or raises SourceError; a sampler answers within [0, 1]."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from carico.errors import SourceError
from carico.settings import DIMENSIONS, TelemetrySettings
from carico.telemetry import cgroup, diskstats, limits, meminfo, netdev, pressure, stat
from carico.telemetry.sampler import Sampler

FIXTURES = Path(__file__).parents[1] / "fixtures"
TEXTS = sorted(
    {file.read_bytes() for file in FIXTURES.rglob("*") if file.is_file() and "many-cpus" not in str(file)}, key=len
)

PARSERS = [
    stat.parse_times,
    stat.parse_running,
    stat.count_processors,
    pressure.parse_total,
    meminfo.total,
    meminfo.used_by_available,
    meminfo.used_by_free,
    diskstats.parse_busy,
    lambda text: netdev.parse_traffic(text, "eth0"),
    lambda text: netdev.default_device(text, text),
    cgroup.parse_memberships,
    cgroup.parse_mounts,
    limits.parse_quota,
    lambda text: limits.value_of(text, "throttled_time"),
]

NUMBERS = st.one_of(st.integers(-5, 10**25), st.sampled_from([0, 2**63, 2**64 - 1, 2**64, 10**400])).map(
    lambda n: str(n).encode()
)
WORDS = st.one_of(
    NUMBERS,
    st.sampled_from(
        b"cpu some total= MemTotal: MemFree: MemAvailable: Cached: kB eth0: max -1 0:: / - cgroup procs_running".split()
    ),
    st.binary(max_size=6),
)
LINES = st.lists(st.lists(WORDS, max_size=14).map(b" ".join), max_size=6).map(b"\n".join)


@st.composite
def damaged(draw: Any) -> Any:
    """A real text with one stretch replaced."""
    text = draw(st.sampled_from(TEXTS))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, len(text)))
    return text[:start] + draw(st.one_of(WORDS, st.binary(max_size=12))) + text[end:]


ANY_TEXT = st.one_of(st.binary(max_size=200), LINES, damaged())


@pytest.mark.parametrize("parse", PARSERS)
@given(text=ANY_TEXT)
@settings(max_examples=150)
def test_parsers_answer_or_raise_source_error(parse: Any, text: str) -> None:
    try:
        result = parse(text)
    except SourceError:
        return
    if isinstance(result, float) and parse is not limits.parse_quota:
        assert 0.0 <= result <= 1.0


@given(first=ANY_TEXT, second=ANY_TEXT, seconds=st.floats(-1, 1e6, allow_nan=False))
@example(first=b"cpu 0 0 0 0\n", second=b"cpu 18446744073709551615 0 0 0\n", seconds=1e-9)
@settings(max_examples=80)
def test_a_sampler_on_garbage_stays_within_bounds(first: Any, second: Any, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        proc = Path(folder)
        names = ["stat", "meminfo", "pressure/cpu", "pressure/memory", "pressure/io", "diskstats", "net/dev"]
        for name in [*names, "net/route", "self/cgroup", "self/mountinfo"]:
            (proc / name).parent.mkdir(exist_ok=True)
        try:
            _feed(proc, names, first)
            sampler = Sampler(TelemetrySettings(proc_root=proc, dimensions=DIMENSIONS, own_limits=True))
        except SourceError:
            pytest.fail("a sampler must start on any machine")
        sampler.read(1.0)
        _feed(proc, names, second)
        got = sampler.read(1.0 + seconds)
        assert got is None or all(0.0 <= value <= 1.0 for value in got.values)
        assert all(0.0 <= value <= 1.0 for value in sampler.raw.values())


def _feed(proc: Path, names: list[str], text: bytes) -> None:
    for name in [*names, "net/route", "self/cgroup", "self/mountinfo"]:
        (proc / name).write_bytes(text)


@given(before=st.tuples(*[st.integers(0, 2**64)] * 2), after=st.tuples(*[st.integers(0, 2**64)] * 2))
def test_utilisation_is_a_ratio(before: Any, after: Any) -> None:
    value = stat.utilisation(stat.CpuTimes(*before), stat.CpuTimes(*after))
    assert value is None or 0.0 <= value <= 1.0


@given(running=st.integers(0, 10**6), processors=st.integers(0, 10**4))
def test_queue_is_a_ratio(running: Any, processors: Any) -> None:
    assert 0.0 <= stat.queue(running, processors) <= 1.0
