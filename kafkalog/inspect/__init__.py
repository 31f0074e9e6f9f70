"""Is it whole: `verify/`, repair, the raw files, the drawing."""
