"""Placement of sets of pods: one search for live cycles, preemptions, reservations and dry runs."""
