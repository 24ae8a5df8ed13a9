"""`python -m carico.embedded.node`: see process.py."""

import sys

from carico.embedded.node.process import main

if __name__ == "__main__":
    sys.exit(main())
