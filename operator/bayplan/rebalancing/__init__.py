"""Plans of moves as documents."""
