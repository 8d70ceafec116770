"""Makes `python -m zeus.cli` run the command `zeus`."""

from __future__ import annotations

import sys

from zeus.cli import main

if __name__ == "__main__":
    sys.exit(main())
