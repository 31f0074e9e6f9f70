"""What the tour of the flights has already: the input, and how it speaks."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "flights"))

source = import_module("source")
tour = import_module("tour")
