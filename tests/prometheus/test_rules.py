"""The alert rules: promtool's checks, a firing and a quiet case of each, their metrics, and their runbook."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOME = ROOT / "scheduler/prometheus"
TESTS = Path(__file__).parent / "rules_test.yaml"
PAGES = ROOT / "tests/fixtures/metrics"
needs_promtool = pytest.mark.needs("promtool")
# Set by the scrape configuration, or by Prometheus itself.
TARGET_LABELS = {"job", "instance", "namespace", "pod", "container"}
OF_PROMETHEUS = {"up"}
OF_CLIENT = ("process_", "python_")  # of prometheus_client: not in the recorded pages


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MONITORING = load("monitoring")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load((HOME / "rules.yaml").read_text())["groups"] for rule in group["rules"]]


def promtool(*argv: str) -> str:
    done = subprocess.run(["promtool", *argv], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(HOME / "rules.yaml"))


@needs_promtool
def test_every_rule_fires_when_it_should_and_not_otherwise() -> None:
    promtool("test", "rules", str(TESTS))


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    cases: defaultdict[str, set[bool]] = defaultdict(set)
    severities: defaultdict[str, set[str]] = defaultdict(set)
    for test in yaml.safe_load(TESTS.read_text())["tests"]:
        for case in test["alert_rule_test"]:
            cases[case["alertname"]].add(bool(case["exp_alerts"]))
            severities[case["alertname"]] |= {alert["exp_labels"]["severity"] for alert in case["exp_alerts"]}
    for rule in rules():
        assert cases[rule["alert"]] == {True, False}, rule["alert"]
        assert rule["labels"]["severity"] in severities[rule["alert"]], rule["alert"]


def test_every_alert_says_what_happened_and_has_a_runbook() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    headings = {line.removeprefix("### ").strip() for line in text.splitlines() if line.startswith("### ")}
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        notes = rule["annotations"]
        assert notes.keys() == {"summary", "description", "runbook_url"}
        assert notes["summary"].endswith(".")
        assert notes["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["alert"] in headings
    named = {heading for heading in headings if heading.startswith("Carico")}
    assert named == {rule["alert"] for rule in rules()}


def test_the_generated_files_are_current() -> None:
    for path, text in MONITORING.files():
        assert path.read_text() == text, f"{path.name}: `make monitoring` writes it again"


# --- every metric exists ---

SELECTOR = re.compile(r"\b([a-z][a-z0-9_]*)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
WORDS = {
    "sum", "by", "rate", "increase", "histogram_quantile", "or", "and", "on", "ignoring", "vector", "absent", "time",
    "max", "avg", "count", "topk", "clamp_min", "group_left",
}  # fmt: skip


def expressions() -> list[str]:
    boards = [panel.queries for board in MONITORING.DASHBOARDS for _, panels in board.rows for panel in panels]
    return [rule["expr"] for rule in rules()] + [query.expr for queries in boards for query in queries]


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """Metric to labels: names from the recorded pages, labels from the registries that these were made from."""
    recorded = set()
    for page in PAGES.glob("*.txt"):
        recorded |= set(re.findall(r"^# TYPE (\S+) ", page.read_text(), re.MULTILINE))
    tables = load("metric_tables")
    found: dict[str, set[str]] = {}
    for registry in tables.registries().values():
        for family in tables.families(registry):
            if family.name in recorded or family.name.startswith(OF_CLIENT):
                names = [family.name, *(f"{family.name}_{end}" for end in ("bucket", "sum", "count"))]
                labels = set(family.labels)
                for name in names if family.kind == "histogram" else names[:1]:
                    found[name] = found.get(name, set()) | labels | ({"le"} if name.endswith("_bucket") else set())
    return found


def used(expr: str) -> dict[str, set[str]]:
    """Metric to the labels that are selected.

    >>> used('sum by (x) (rate(a_total{b="c"}[5m])) > 1 and up == 1')
    {'a_total': {'b'}, 'up': set()}
    """
    plain = re.sub(r"\b(by|on|ignoring|group_left)\s*\([^)]*\)", " ", expr)
    plain = re.sub(r"\[[^]]*\]", " ", plain)
    found: dict[str, set[str]] = {}
    for name, inside in SELECTOR.findall(plain):
        if (name not in WORDS and "_" in name) or name == "up":
            labels = set(MATCHER.findall(inside))
            found[name] = found.get(name, set()) | labels
    return found


def test_every_metric_of_rules_and_dashboards_exists_with_its_labels(known: dict[str, set[str]]) -> None:
    names = set()
    for expr in expressions():
        for name, labels in used(expr).items():
            names.add(name)
            if name in OF_PROMETHEUS:
                continue
            assert name in known, expr
            assert labels <= known[name] | TARGET_LABELS, expr
        grouped = {label.strip() for inside in re.findall(r"\bby \(([^)]*)\)", expr) for label in inside.split(",")}
        there = set().union(*(known.get(name, set()) for name in used(expr))) | TARGET_LABELS
        assert grouped <= there, expr
    assert len(names) > 50


def test_a_metric_that_does_not_exist_is_found(known: dict[str, set[str]]) -> None:
    assert used('sum(rate(carico_none_total{a="b"}[5m]))') == {"carico_none_total": {"a"}}
    assert "carico_none_total" not in known
