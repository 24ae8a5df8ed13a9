"""`python -m carico.embedded.simulated`: see nodes.py."""

import sys

from carico.embedded.simulated.nodes import main

if __name__ == "__main__":
    sys.exit(main())
