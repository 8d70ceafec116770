"""One file for each migration, in order."""
