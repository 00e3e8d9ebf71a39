"""The past of a profile, and the way back; for commands that run with the user's own rights."""
