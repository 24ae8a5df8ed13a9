"""Prints what is installed in a folder as a CycloneDX document: `python tools/sbom.py FOLDER`.

Only the standard library: it runs while the image is built.
"""

from __future__ import annotations

import json
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

SPEC = "1.5"


def bill(folder: Path) -> dict[str, Any]:
    found = sorted(metadata.distributions(path=[str(folder)]), key=lambda one: one.metadata["Name"].lower())
    components = [_component(one) for one in found]
    whole = next(part for part in components if part["name"] == "carico")
    parts = [part for part in components if part is not whole]
    content = json.dumps(components, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",  # the same for the same content
        "version": 1,
        "metadata": {"component": whole | {"type": "application"}},
        "components": parts,
        "dependencies": [{"ref": whole["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def _component(one: metadata.Distribution) -> dict[str, Any]:
    name, version = one.metadata["Name"], one.version
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    licence = _field(one, "License-Expression") or _field(one, "License")
    if licence and "\n" not in licence:
        found["licenses"] = [{"expression": licence} if _is_expression(one) else {"license": {"name": licence}}]
    return found


def _is_expression(one: metadata.Distribution) -> bool:
    """Only this field is an SPDX expression; the older one is any text."""
    return bool(_field(one, "License-Expression"))


def _field(one: metadata.Distribution, name: str) -> str:
    return next(iter(one.metadata.get_all(name) or ()), "")


if __name__ == "__main__":
    print(json.dumps(bill(Path(sys.argv[1])), indent=1))
