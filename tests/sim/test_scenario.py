"""Scenario files: what is wrong is said in one sentence that names the place; the shipped ones are valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from carico import cli
from carico.errors import UsageError
from carico.sim.scenario import load, parse
from carico.sim.simulation import Simulation

SHIPPED = sorted(Path(__file__).parents[2].glob("scenarios/*.yaml"))


def scenario(**changes: Any) -> dict[str, Any]:
    pod = {"phases": [{"cpu": "5s"}]}
    plain: dict[str, Any] = {"nodes": [{"cores": 4, "memory": "8Gi"}], "workloads": [{"name": "pi", "pod": pod}]}
    return plain | changes


def node(**changes: Any) -> list[dict[str, Any]]:
    return [{"cores": 4, "memory": "8Gi"} | changes]


def workload(pod: Any = None, **changes: Any) -> list[dict[str, Any]]:
    return [{"name": "pi", "pod": pod or {"phases": [{"cpu": "5s"}]}} | changes]


WRONG = {
    "an unknown key": (scenario(node=[]), "there is no field 'node'; did you mean 'nodes'?"),
    "an unknown key of a node": (scenario(nodes=node(memry=1)), "nodes[0]: there is no field 'memry'"),
    "no memory": (scenario(nodes=[{"cores": 4}]), "nodes[0]: object missing required field `memory`"),
    "zero memory": (scenario(nodes=node(memory=0)), "nodes[0]: memory must be more than 0, such as 8Gi"),
    "negative memory": (scenario(nodes=node(memory="-1Gi")), "'-1Gi' is not an amount of 0 or more"),
    "endless cores": (scenario(nodes=node(cores=1e9)), "nodes[0].cores: expected `float` <= 1024"),
    "no nodes": (scenario(nodes=[]), "nodes: expected `array` of length >= 1"),
    "a negative time": (scenario(seconds="-5s"), "seconds: '-5s' is not an amount of 0 or more"),
    "no time": (scenario(seconds=0), "seconds is 0; it must be more than 0"),
    "a week": (scenario(seconds="168h"), "at most 24h"),
    "a time in words": (
        scenario(workloads=workload({"phases": [{"lasts": "5 minutes"}]})),
        "workloads[0].pod.phases[0].lasts: '5 minutes' is not",
    ),
    "a million pods": (scenario(workloads=workload(pods=1_000_000)), "workloads[0].pods: expected `int` <= 200000"),
    "too many together": (
        scenario(workloads=[*workload(pods=150_000), *workload(pods=150_000, name="other")]),
        "there are 300,000 pods; the simulator takes at most 200,000",
    ),
    "two of one name": (scenario(workloads=workload() * 2), "two of the workloads are called 'pi'"),
    "neither work nor time": (scenario(workloads=workload({"phases": [{}]})), "a phase has either cpu"),
    "no phases": (scenario(workloads=workload({"labels": {}, "phases": []})), "expected `array` of length >= 1"),
    "a share above 1": (scenario(nodes=node(contention="150%")), "'150%' is not a share"),
    "text for a share": (scenario(nodes=node(contention="much")), "'much' is not a share; write it like 5% or 0.05"),
    "a list for an amount": (scenario(nodes=node(memory=[1])), "[1] is neither a number nor a text"),
}
# Names are looked up when the simulation is built.
UNKNOWN = {
    "policy": (scenario(schedulers=["carrico"]), "no policy is called 'carrico'; did you mean 'carico'?"),
    "controller": (scenario(workloads=workload(controller="jobs")), "no controller is called 'jobs'"),
    "pattern": (scenario(workloads=workload({"pattern": "pie"})), "no pattern is called 'pie'; did you mean 'pi'?"),
    "fault": (scenario(faults=[{"kind": "agents", "at": 1}]), "no fault is called 'agents'"),
    "node of a fault": (
        scenario(faults=[{"kind": "node-gone", "at": 1, "nodes": ["node-9"]}]),
        "there is no node 'node-9'; did you mean 'node-0'?",
    ),
    "workload of requests": (
        scenario(schedulers=[{"policy": "kube", "requests": {"pie": {"cpu": 1}}}]),
        "scheduler kube: requests name no workload 'pie'; did you mean 'pi'?",
    ),
    "requests in a word": (scenario(schedulers=[{"policy": "kube", "requests": "wrong"}]), "it is `right`"),
    "setting": (
        scenario(schedulers=[{"policy": "carico", "settings": {"treshold": 1}}]),
        "no setting is called 'treshold'; did you mean 'threshold'?",
    ),
    "agent's setting": (
        scenario(schedulers=[{"policy": "carico", "agent": {"estimator": "best"}}]),
        "scheduler carico: agent: 'best'",
    ),
    "argument": (scenario(schedulers=[{"policy": "trimaran", "args": {"goal": 1}}]), "no argument is called 'goal'"),
    "negative argument": (scenario(schedulers=[{"policy": "trimaran", "args": {"target": -1}}]), "target is -1"),
    "arrivals without a rate": (scenario(workloads=workload(controller="arrivals")), "needs per_second"),
    "autoscaler without a request": (
        scenario(workloads=workload(controller="deployment", autoscale={"most": 3})),
        "autoscale needs requests.cpu",
    ),
}


@pytest.mark.parametrize(("plain", "sentence"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_a_sentence(plain: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(yaml.safe_dump(plain), "x.yaml")
    message = str(caught.value)
    assert message.startswith("x.yaml: ")
    assert sentence in message
    assert "\n" not in message


@pytest.mark.parametrize(("plain", "sentence"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_name_is_found_before_anything_runs(plain: dict[str, Any], sentence: str) -> None:
    parsed = parse(yaml.safe_dump(plain))
    (entry,) = parsed.entries
    with pytest.raises(UsageError) as caught:
        Simulation(parsed, entry, seed=1)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("text", ["", "[", "just text", "- a\n- b", "a: &a [*a]"])
def test_text_that_is_no_mapping(text: str) -> None:
    with pytest.raises(UsageError, match=r"^x\.yaml: "):
        parse(text, "x.yaml")


def test_the_command_ends_with_one_line_and_exit_code_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(scenario(schedulers=["carico", "carrico"])))
    assert cli.main(["simulate", str(file)]) == 2
    assert cli.main(["simulate", str(tmp_path / "none.yaml")]) == 2
    assert cli.main(["simulate", str(file), "--scheduler", "kube"]) == 2
    err = capfd.readouterr().err.splitlines()
    assert [line for line in err if "carrico" in line or "none.yaml" in line or "'kube'" in line] == err
    assert len(err) == 3


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_shipped_scenario_can_be_built(file: Path) -> None:
    shipped = load(file)
    assert shipped.name == file.stem
    for entry in shipped.entries:
        Simulation(shipped, entry, seed=1)
