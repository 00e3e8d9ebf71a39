"""Replays of records: comparison of all decisions, and explanations of one."""
