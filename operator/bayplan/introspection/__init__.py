"""What the running operator tells of itself: status, cache check, profile, tasks.

Owns the documents, how they come about and how they are printed. It must not change anything that runs.
"""
