"""`make cluster-down`: ends every cluster of this checkout, and removes what is left of those that were killed.

Standard library only, so that it works even without .venv.
"""

from __future__ import annotations

import sys

from . import runs
from .errors import ClusterError


def main() -> int:
    known = runs.known()
    for run in known:
        try:
            runs.sweep(run)
        except ClusterError as error:
            print(f"cluster: {error}", file=sys.stderr)
            return error.code
        print(f"cluster {run.id}: ended, nothing left")
    if not known:
        print("no cluster of this checkout is running")
    return 0


if __name__ == "__main__":
    sys.exit(main())
