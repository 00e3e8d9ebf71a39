"""Plans of moves: which running pods to evict, and the node that each replacement gets, so that a goal is reached."""
