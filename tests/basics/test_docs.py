"""What the documents name has to be there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"\bdocs/[\w./-]+\.(?:md|png|cast)\b")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_document_names_is_there(document: Path) -> None:
    text = document.read_text()
    linked = {document.parent / target for target in LINK.findall(text) if "://" not in target}
    named = {ROOT / path for path in NAMED.findall(text)}
    assert [str(path.relative_to(ROOT)) for path in linked | named if not path.exists()] == []


def test_every_benchmark_that_is_named_somewhere_exists() -> None:
    files = [*DOCUMENTS, *ROOT.glob("carico/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/*.py")]
    named = {name for file in files for name in re.findall(r"NAME=([a-z][a-z-]+)", file.read_text())}
    listed = subprocess.run(
        [sys.executable, "-m", "bench"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    known = {line.split()[0] for line in listed.splitlines()}
    assert named - known - {"my-benchmark"} == set(), "my-benchmark is the example in CONTRIBUTING.md"


def test_the_reference_of_commands_settings_and_metrics_is_up_to_date(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "tools/reference.py"), str(tmp_path)], check=True)
    for name in ("commands.md", "settings.md", "metrics.md"):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text(), "`make docs` writes them again"


def test_the_layers_are_those_that_are_checked() -> None:
    """In the document and in .importlinter, which also marks layers that may be missing with brackets."""
    checked = re.findall(
        r"^layers =\n(.*?)(?=\n\S|\n\n)", (ROOT / ".importlinter").read_text(), re.DOTALL | re.MULTILINE
    )
    layers = (ROOT / "docs/architecture.md").read_text().partition("## Layers\n")[2].partition("\n## ")[0]
    told = re.findall(r"((?:^    .*\n)+)", layers, re.MULTILINE)
    assert [block.split() for block in told] == [re.sub("[()]", "", block).split() for block in checked]
    assert len(told) == 2, "of the package and of the scheduler"


def test_a_recording_holds_what_a_terminal_showed(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools/record.py"), str(tmp_path / "x.cast")]
    done = subprocess.run([*command, "sh", "-c", r"printf 'a\rbö'; stty size; exit 3"], capture_output=True, text=True)
    assert done.returncode == 3
    head, *events = (tmp_path / "x.cast").read_text().splitlines()
    assert '"version": 2, "width": 100' in head
    assert "".join(re.findall(r'"o", "(.*)"\]', "\n".join(events))) == r"a\rbö36 100\r\n"
