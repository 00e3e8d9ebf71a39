"""History and rollback of a profile, for commands that run with the user's own rights."""
