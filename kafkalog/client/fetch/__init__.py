"""Records from their leaders: fetch sessions, epochs, and the way to the reader."""
