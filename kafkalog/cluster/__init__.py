"""Several nodes, one log: what a controller decides and what a node obeys."""
