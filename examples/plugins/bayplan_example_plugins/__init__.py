"""Two example plugins for Bayplan, to copy from."""
