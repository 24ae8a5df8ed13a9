"""Recordings come back as they were written, and damaged ones are rejected in one line that names the place."""

from __future__ import annotations

import errno
import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.errors import CaricoError, UsageError
from carico.recording import format as recording
from carico.recording import lines as recording_lines
from carico.recording.chunks import MAGIC
from carico.recording.format import CHUNK_ROWS, RecordingWriter, load
from carico.recording.lines import GZIP
from carico.recording.playback import Playback
from carico.settings import NodeSettings
from carico.types import ClassKey, MeasuredPod, NodeSize

COLUMNS = ("t", "n", "churn", "unsettled", "util", "psi", "mem")
OLD = Path(__file__).parents[2] / "docs" / "recordings" / "pods.rec"  # written before gzip


def written(path: Path, rows: Any) -> Path:
    writer = RecordingWriter(path, COLUMNS, {"cores": 2}, force=True)
    try:
        for row in rows:
            writer.add(row)
    finally:
        writer.close()
    return path


def refusal(action: Any) -> str | None:
    try:
        action()
    except UsageError as error:
        return str(error)
    return None


def rows(count: int) -> list[list[float]]:
    return [[i / 10, i // 7, i % 2, 1, 0.5, 0.25, i / (2 * count)] for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, CHUNK_ROWS, 3 * CHUNK_ROWS + 1])
def test_round_trip(tmp_path: Path, count: int) -> None:
    got = load(written(tmp_path / "r", rows(count)))
    assert got.columns == COLUMNS
    assert got.head["cores"] == 2
    assert got.values == pytest.approx(np.array(rows(count)).reshape(count, len(COLUMNS)), abs=1e-6)


def test_time_keeps_its_precision_over_months(tmp_path: Path) -> None:
    times = [1e7 + i / 10 for i in range(10)]
    got = load(written(tmp_path / "r", [[t, *[0.0] * 6] for t in times]))
    assert got.values[:, 0].tolist() == times


@given(cut=st.integers(0, 10_000))
def test_a_recorder_that_was_killed_leaves_what_it_had_written(
    tmp_path_factory: pytest.TempPathFactory, cut: Any
) -> None:
    path = written(tmp_path_factory.getbasetemp() / "killed", rows(4 * CHUNK_ROWS))
    whole = path.read_bytes()
    head = whole.index(GZIP, 2)  # of the second member
    path.write_bytes(whole[: max(head, len(whole) - cut)])
    got = load(path)
    assert got.values == pytest.approx(np.array(rows(4 * CHUNK_ROWS))[: len(got.values)], abs=1e-6)
    if cut == 0:
        assert len(got.values) == 4 * CHUNK_ROWS


@given(cut=st.integers(0, 100_000))
def test_an_old_recording_that_was_cut_off_has_all_its_full_chunks(
    tmp_path_factory: pytest.TempPathFactory, cut: Any
) -> None:
    path, whole = tmp_path_factory.getbasetemp() / "old", OLD.read_bytes()
    head = whole.index(b"\n", len(MAGIC)) + 1
    path.write_bytes(whole[: max(head, len(whole) - cut)])
    got = load(path)
    assert got.columns == COLUMNS
    assert (got.values == load(OLD).values[: len(got.values)]).all()


def measured(uid: str, key: ClassKey | None, age: float, figures: tuple[float, ...] | None) -> MeasuredPod:
    demand, use = (None, None) if figures is None else (figures[:2], figures[2:])
    return MeasuredPod(uid, key, age, age > 0, demand, use, exact=age > 3, fresh=figures is not None)


def test_pods_come_back_as_they_were_measured(tmp_path: Path) -> None:
    web, told = ClassKey("n", "n/web", "5d"), ClassKey("n", "n/job:sum")
    seconds = [
        (measured("a", web, 0.0, None), measured("b", None, 4.5, (0.25, 3e7, 0.125, 2e7))),
        (measured("b", told, 5.5, (0.5, 4e7, 0.5, 4e7)),),
        (),
        (measured("a", web, 3.5, (1.5, 1e9, 1.25, 1e9)), measured("b", told, 7.5, (0.0, 0.0, 0.0, 0.0))),
    ]
    path = tmp_path / "r"
    about = {"cores": 8, "memory_bytes": 2**34, "full": {"cpu": 15.5, "memory": 1.5e10}}
    writer = RecordingWriter(path, COLUMNS, about, force=False, resources=("cpu", "memory"))
    for number, row in enumerate(rows(40)):
        writer.add(row)
        if number % 10 == 3:
            writer.add_pods(seconds[number // 10])
    writer.close()
    got = load(path)
    assert [(second.row, second.pods) for second in got.pods] == list(zip((3, 13, 23, 33), seconds, strict=True))
    assert got.head["pod_columns"][-2:] == ["cpu_use", "memory_use"]
    played = Playback(path, got, NodeSettings())
    assert (played.size, played.full) == (NodeSize(8, 2**34), (15.5, 1.5e10))
    assert [played.measured(row) for row in (0, 2)] == [None, None]
    assert [played.measured(row) for row in (3, 12, 13, 39)] == [seconds[i] for i in (0, 0, 1, 3)]


@pytest.mark.parametrize("about", [{}, {"cores": "many", "memory_bytes": 1}, {"cores": 0, "memory_bytes": 2}])
def test_pods_of_a_node_of_unknown_size_are_left_out(tmp_path: Path, about: Any) -> None:
    path = tmp_path / "r"
    writer = RecordingWriter(path, COLUMNS, about, force=False, resources=("cpu", "memory"))
    for row in rows(20):
        writer.add(row)
        writer.add_pods([measured("a", None, 1.0, (0.5, 1e6, 0.5, 1e6))])
    writer.close()
    assert Playback(path, load(path), NodeSettings()).measured(5) is None


def lines(path: Path, *text: str) -> Path:
    head = {"carico": "recording", "format": 2, "columns": ["t", "n", "mem"], "resources": ["cpu", "memory"]}
    path.write_bytes(gzip.compress("\n".join([json.dumps(head), *text, ""]).encode()))
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[0.1, 3]", "line 3 has 2 values instead of 3"),
        ("[0.1, 3, null]", "line 3: Expected `float`, got `null`"),
        ("[0.1, 3, 1e999]", "line 3: Number out of range"),
        ("nonsense", "line 3: JSON is malformed"),
        ("", "line 3: Input data was truncated"),
        ('{"pods": [[0, 1, 1, 1, 1, null]]}', "line 3: a pod is not named or has other columns"),
        ('{"names": {"x": ["u"]}, "pods": []}', "line 3: a pod is not named or has other columns"),
        ('{"names": {"0": []}, "pods": []}', "line 3: a pod is not named or has other columns"),
        ('{"names": {"0": ["u"]}, "pods": [[0, 1, 1, 1, 1, 2, 3]]}', "line 3: a pod is not named or has other columns"),
        ('{"names": {"0": ["u"]}, "pods": [[0, 1, 1, 1, 1, -2, 3, 4, 5]]}', "line 3: a pod is not named"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, text: str, said: Any) -> None:
    with pytest.raises(UsageError) as caught:
        load(lines(tmp_path / "r", "[0.0, 1, 0.5]", text))
    assert said in str(caught.value)


def test_a_gzip_file_in_one_piece_is_read_too(tmp_path: Path) -> None:
    got = load(lines(tmp_path / "r", *[json.dumps([i / 10, 1, 0.5]) for i in range(100_000)]))
    assert len(got.values) == 100_000


def test_a_small_file_that_unpacks_to_very_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_lines, "MOST_BYTES", 1 << 24)
    with pytest.raises(UsageError, match="holds more than"):
        load(lines(tmp_path / "r", *["[0.0, 1, 0.5]"] * 2_000_000))


def test_an_hour_is_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    noisy = np.column_stack([np.arange(36_000) / 10, *np.zeros((3, 36_000)), *rng.random((3, 36_000))])
    assert written(tmp_path / "r", noisy.tolist()).stat().st_size < 800_000


@given(place=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_damaged_byte_is_named_or_harmless(tmp_path_factory: pytest.TempPathFactory, place: Any, value: Any) -> None:
    path = written(tmp_path_factory.getbasetemp() / "damaged", rows(2 * CHUNK_ROWS))
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(data)
    said = refusal(lambda: Playback(path, load(path), NodeSettings()))
    assert said is None or (str(path) in said and "\n" not in said)


@given(data=st.binary(max_size=300))
def test_any_bytes_are_a_recording_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes"
    head = lines(path).read_bytes()
    for start in (b"", GZIP, head, MAGIC, MAGIC + b'{"columns": ["t", "n", "mem"]}\n'):
        path.write_bytes(start + data)
        assert "\n" not in (refusal(lambda: load(path)) or "")


def test_a_later_version_says_so(tmp_path: Path) -> None:
    later = {"carico": "recording", "format": 3, "columns": ["t"], "resources": []}
    (tmp_path / "r").write_bytes(gzip.compress(json.dumps(later).encode() + b"\n"))
    with pytest.raises(UsageError, match="this version cannot read"):
        load(tmp_path / "r")


def test_existing_file_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "r", rows(3))
    with pytest.raises(UsageError, match="--force"):
        RecordingWriter(path, COLUMNS, {}, force=False)
    assert len(load(path).values) == 3


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes half a chunk and then no more."""

    class NearlyFull:
        def __init__(self, file: Any) -> None:
            self._file, self.room = file, 2000

        def write(self, part: Any) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            took: int = self._file.write(part[: self.room])
            self.room -= took
            return took

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    create = recording._create
    monkeypatch.setattr(recording, "_create", lambda path, force: NearlyFull(create(path, force)))
    noise = np.random.default_rng(2).random((20 * CHUNK_ROWS, len(COLUMNS))).tolist()
    with pytest.raises(CaricoError, match=r"no space left after [1-9][0-9]* rows; those can be replayed"):
        written(tmp_path / "r", noise)
    assert len(load(tmp_path / "r").values) >= CHUNK_ROWS


GOOD = {"columns": ["t", "n", "util", "psi", "mem"], "rows": [[0.1 * i, 1, 0.5, 0.1, 0.3] for i in range(30)]}


def playback(tmp_path: Path, document: Any) -> Playback:
    path = tmp_path / "r.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return Playback(path, load(path), NodeSettings())


def test_plain_json(tmp_path: Path) -> None:
    got = playback(tmp_path, GOOD)
    assert got.dimensions == ("cpu", "memory")
    assert got.rate_hz == pytest.approx(10)
    first, pods = next(iter(got))
    assert first.values == pytest.approx(((0.5 + 0.1) / 2, 0.3))
    assert pods == (1, False, 0)


@pytest.mark.parametrize("note", [99, "a host", None, [1]])
def test_columns_in_any_order_and_columns_of_others(tmp_path: Path, note: Any) -> None:
    mixed = {"columns": ["mem", "note", "n", "t"], "rows": [[0.3, note, 1, i] for i in range(3)]}
    assert [sample.values for sample, _ in playback(tmp_path, mixed)] == [(0.3,)] * 3


def test_the_rate_is_that_of_the_samples_whatever_their_jitter_and_pauses(tmp_path: Path) -> None:
    times = [0.1 * i + 0.03 * (i % 3) + (1e6 if i > 150 else 0) for i in range(300)]
    rows = [[t, 1, 0.5, 0.1, 0.3] for t in times]
    assert playback(tmp_path, {**GOOD, "rows": rows}).rate_hz == pytest.approx(10, rel=0.01)


def test_utilisation_alone_does_without_pressure(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"columns": ["t", "n", "util"], "rows": [[i, 0, 0.4] for i in range(3)]}))
    got = Playback(path, load(path), NodeSettings(cpu="utilisation"))
    assert [sample.values for sample, _ in got] == [(0.4,)] * 3


def test_a_pipe_is_no_place_for_a_recording(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(UsageError, match="a recording needs a file"):
            RecordingWriter(tmp_path / "pipe", COLUMNS, {}, force=True)
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["columns"].__setitem__(3, "pressure"), "there is util but no psi; --cpu utilisation"),
        (lambda d: d["columns"].__setitem__(3, "mem"), "there are two columns mem"),
        (lambda d: d.update(rows=[[1e-9 * i, *row[1:]] for i, row in enumerate(d["rows"])]), "t is in seconds"),
        (lambda d: d.update(rows=[[1e9 * i, *row[1:]] for i, row in enumerate(d["rows"])]), "t is in seconds"),
        (lambda d: d["rows"].__setitem__(7, [0.7, 1, "x", 0, 0]), "row 7, column util: 'x' is not a finite number"),
        (lambda d: d["rows"].__setitem__(7, [0.7, 1, 0, 0]), "row 7 is 4 values instead of a list of 5 numbers"),
        (lambda d: d["rows"].__setitem__(7, None), "row 7 is NoneType"),
        (lambda d: d["rows"][7].__setitem__(4, 1.3), "row 7, column mem: 1.3 is not a ratio between 0 and 1"),
        (lambda d: d["rows"][7].__setitem__(1, 1.5), "row 7, column n: 1.5 is not a number of pods"),
        (lambda d: d["rows"][7].__setitem__(1, -1), "row 7, column n: -1 is not a number of pods"),
        (lambda d: d["rows"][7].__setitem__(0, 0.6), "row 7, column t: 0.6 is not later than the row before"),
        (lambda d: d["rows"][7].__setitem__(3, 10**400), "row 7, column psi"),
        (lambda d: d["rows"][7].__setitem__(3, float("nan")), "row 7, column psi: nan is not a finite number"),
        (lambda d: d["columns"].__setitem__(1, "pods"), "there is no column n"),
        (lambda d: d.update(columns=["t", "n", "a", "b", "c"]), "at least the columns util and psi"),
        (lambda d: d.update(rows=d["rows"][:1]), "1 rows are too few"),
        (lambda d: d.pop("rows"), 'wants "rows"'),
        (lambda d: d.update(columns="t n"), 'wants an object with "columns"'),
    ],
)
def test_bad_json_is_refused_in_one_line(tmp_path: Path, change: Any, said: Any) -> None:
    document = json.loads(json.dumps(GOOD))
    change(document)
    with pytest.raises(UsageError) as refused:
        playback(tmp_path, document)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 100_000, '{"columns": 1}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        playback(tmp_path, text)
