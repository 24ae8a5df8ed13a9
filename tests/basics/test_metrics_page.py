"""The /metrics page of each process, series by series: a name, label, bucket or help text that changes shows in a diff.

`make docs` writes tests/fixtures/metrics/ again.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "tests/fixtures/metrics"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("metric_tables", ROOT / "tools/metric_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("metrics")
    module.write_pages(folder)
    return folder


@pytest.mark.parametrize("process", ["agent", "aggregator", "scheduler"])
def test_the_page_is_the_one_that_was_recorded(written: Path, process: str) -> None:
    found, recorded = (folder / f"{process}.txt" for folder in (written, PAGES))
    assert found.read_text().splitlines() == recorded.read_text().splitlines(), "`make docs` records it again"
