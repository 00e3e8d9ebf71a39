"""Compares two profiles on one cluster: what each would decide, and what a change would move."""
