"""Records in files: a bounded directory of them, and how they are read."""
