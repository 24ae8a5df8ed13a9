"""Prints those of the locked requirements on standard input that apply on Linux: `requirements_for.py 3.13`.

pip evaluates markers for the Python that runs it, also with --python-version.
"""

from __future__ import annotations

import sys

from packaging.markers import Marker


def applies(requirement: str, version: str) -> bool:
    """
    >>> applies("numpy==2.4.6 ; python_full_version < '3.12'", "3.13"), applies("msgspec==0.22.0", "3.13")
    (False, True)
    """
    _, semicolon, marker = requirement.partition(";")
    environment = {"python_full_version": f"{version}.0", "python_version": version, "sys_platform": "linux"}
    return not semicolon or Marker(marker).evaluate(environment)


def main() -> None:
    for block in sys.stdin.read().replace("\\\n", "\0").splitlines():
        name, *hashes = block.split("\0")
        if applies(name, sys.argv[1]):
            print(" ".join([name.partition(";")[0], *(text.strip() for text in hashes)]))


if __name__ == "__main__":
    main()
