"""Modules from the tour of the flights: its input and its output."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "flights"))

source = import_module("source")
tour = import_module("tour")
