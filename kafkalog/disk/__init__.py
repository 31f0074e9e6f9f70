"""Names and small files of a directory: the layout, checkpoints, one held open."""
