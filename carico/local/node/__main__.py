"""`python -m carico.local.node`: see process.py."""

import sys

from carico.local.node.process import main

if __name__ == "__main__":
    sys.exit(main())
