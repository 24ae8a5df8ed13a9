"""Writes what the manifests take from the code, and renders install.yaml: `make manifests`.

The roles come from carico/kube/calls.py, the tables of settings in the READMEs from carico/settings.py.

python tools/manifests.py [--kubectl KUBECTL] [FOLDER]
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
import typing
from collections.abc import Iterator
from pathlib import Path

import reference

from carico import config, flags
from carico.kube.calls import NeededBy
from carico.kube.roles import manifests
from carico.scheduler import enabled_parts
from carico.settings import SchedulerSettings

CHECKOUT = Path(__file__).parents[1]
NAMESPACE = "carico-system"
MADE = "# Made by `make manifests` from carico/kube/calls.py.\n"
BEGIN, END = "<!-- settings: made by `make manifests` -->", "<!-- end of settings -->"
FOLDERS = {"agent": "daemonset", "aggregator": "aggregator", "scheduler": "scheduler"}
EXTENDER = "carico-scheduler-extender"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kubectl", default="kubectl", help="kubectl that renders install.yaml; empty: leave it as it is"
    )
    parser.add_argument("folder", nargs="?", type=Path, default=CHECKOUT)
    arguments = parser.parse_args()
    for name, text in generated(CHECKOUT).items():
        (arguments.folder / name).write_text(text)
    if arguments.kubectl:
        (arguments.folder / "install.yaml").write_text(rendered(arguments.kubectl, arguments.folder))


def generated(checkout: Path) -> dict[str, str]:
    """Path → content of each file that is made from the code."""
    files = {}
    settings = config.load(
        SchedulerSettings, "scheduler", file=checkout / "scheduler/carico.toml", environ={}, flags={}
    )
    for text in manifests(enabled_parts.parts(settings), NAMESPACE).split("---\n"):
        kind = re.findall(r"^kind: (\w+)$", text, re.MULTILINE)[0].lower()
        files[f"scheduler/{kind}.yaml"] = MADE + text
    files["aggregator/clusterrole.yaml"] = MADE + manifests({NeededBy.TOKENS}, "", name="carico-aggregator")
    files["install/components/extender/clusterrole.yaml"] = MADE + manifests({NeededBy.EXTENDER}, "", name=EXTENDER)
    for section, folder in FOLDERS.items():
        files[f"{folder}/README.md"] = _with_settings((checkout / folder / "README.md").read_text(), section)
    return files


def _with_settings(readme: str, section: str) -> str:
    before, _, rest = readme.partition(BEGIN)
    return "\n".join([before + BEGIN, "", *_table(section), "", END]) + rest.partition(END)[2]


def _table(section: str) -> Iterator[str]:
    """Every setting of a process. A table of docs/settings.md has flags and environment too."""
    cls = reference.SECTIONS[section][0]
    kinds, fields = typing.get_type_hints(cls), {field.name: field for field in dataclasses.fields(cls)}
    yield from (f"| setting in `[{section}]` | value | default | |", "| --- | --- | --- | --- |")
    for _, names in flags.groups(cls, flags.names(cls)):
        for name in names:
            field = fields[name]
            value, default = reference.value_of(field, kinds[name]), reference.default_of(field, kinds[name])
            yield f"| `{name}` | {value} | {default} | {reference.escaped(field.metadata['about'])} |"


def rendered(kubectl: str, folder: Path) -> str:
    """install.yaml: what `kubectl apply -k .` would apply."""
    head = "# Made by `make manifests` from kustomization.yaml: kubectl apply -f install.yaml\n"
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=True)
    return head + done.stdout


if __name__ == "__main__":
    main()
