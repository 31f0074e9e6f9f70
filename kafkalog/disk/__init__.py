"""Names and small files of a data directory: its layout and checkpoints, and holding it open."""
