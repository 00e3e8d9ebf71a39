"""PodGroups of the three APIs: what is read of them, and what is told in them."""
