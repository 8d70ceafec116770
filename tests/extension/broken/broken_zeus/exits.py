"""A module that ends the program of whoever imports it."""

from __future__ import annotations

import sys

sys.exit("this package needs a license")
