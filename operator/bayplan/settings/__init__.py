"""Settings and feature gates of the operator: everything that is not part of a profile."""
