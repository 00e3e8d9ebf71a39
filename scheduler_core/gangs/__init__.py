"""Scheduling of pod groups: one group is placed as a whole or not at all."""
