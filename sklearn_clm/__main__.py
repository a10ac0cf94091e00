"""Entry point of ``python -m sklearn_clm``."""

import sys

from sklearn_clm._cli import main

if __name__ == "__main__":
    sys.exit(main())
