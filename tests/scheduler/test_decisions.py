"""The ring of decisions: bounded, dumped, read back, replayed, shown to people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from carico.cli import main
from carico.scheduler.cycle.decision_log import DecisionLog, DecisionRecord, load, replay


def record(
    pod: str, node: str, free: float | None = 5.0, result: str = "scheduled", need: float | None = None
) -> DecisionRecord:
    return DecisionRecord(0.0, pod, f"uid-{pod}", "carico", 1, node, result, free_before=free, need=need)


def test_the_ring_is_bounded_dumped_and_read_back() -> None:
    ring = DecisionLog(3)
    for i in range(5):
        ring.add(record(f"p{i}", "a"))
    assert [each.pod for each in load(ring.dump())] == ["p2", "p3", "p4"]
    assert len(ring.of_pod("p3")) == 1
    assert load(b"a line of the log\n" + ring.dump() + b"{}\n") == load(ring.dump())


def test_a_replay_finds_what_must_not_be() -> None:
    assert replay([record("p", "a"), record("p", "a", result="failed"), record("p", "b")]) == []
    assert replay([record("p", "a"), record("p", "b")]) == ["p was assigned a and then b"]
    assert replay([record("p", "a", free=0.4)]) == ["p went to a, which had only 0.4 pods free"]
    assert replay([record("p", "a", free=None)]) == []  # no report was used
    assert len(replay([record("p", "a", free=1.5)], threshold=2)) == 1


def test_each_decision_is_held_to_the_threshold_of_its_time() -> None:
    lower, higher = record("p", "a", free=0.6, need=0.5), record("q", "a", free=1.5, need=2.0)
    assert replay([lower, higher]) == ["q went to a, which had only 1.5 pods free"]
    assert replay([lower, higher], threshold=1.0) == ["p went to a, which had only 0.6 pods free"]
    assert load(b'{"at":0,"pod":"p","uid":"u","profile":"x","attempt":1,"node":"a","free_before":0.6}')[0].need is None


def test_people_read_and_replay_a_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring, file = DecisionLog(10), tmp_path / "dump"
    for name, free in (("default/p", 3.0), ("default/q", 1.2)):
        ring.add(record(name, "node-7", free))
    file.write_bytes(ring.dump())
    assert main(["decisions", str(file), "--pod", "default/q"]) == 0
    shown = capsys.readouterr().out
    assert "default/q" in shown
    assert "1970-01-01T00:00:00.000Z" in shown  # as in the log
    assert "default/p" not in shown
    assert "replayed 2 decisions (2 scheduled): none violate the rules" in shown
    assert main(["decisions", str(file), "--threshold", "2", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["wrong"] == ["default/q went to node-7, which had only 1.2 pods free"]


def test_a_file_that_is_no_dump_has_broken_no_rules_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Pod\n")
    assert main(["decisions", str(file)]) == 2
    assert (
        capsys.readouterr().err
        == f"carico: {file}: holds no decisions; write a dump with SIGUSR2 or /debug/decisions\n"
    )
    file.write_text("")  # what a scheduler that has decided nothing yet writes
    assert main(["decisions", str(file)]) == 0


@pytest.mark.parametrize("argv", [["x", "--server", "http://y"], ["/no/such/file"], ["--server", "ftp://nonsense"]])
def test_where_it_cannot_read_the_error_names_that(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decisions", *argv]) == 2
    assert capsys.readouterr().err.startswith("carico: ")
