"""The admission check of Kueue: a Workload is admitted if its pods fit, and their room is held until they exist."""
