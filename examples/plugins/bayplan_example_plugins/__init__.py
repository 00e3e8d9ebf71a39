"""Two plugins for Bayplan, to be copied from."""
