"""The parts of a controllers' server: what it serves, and how."""
