"""NodeReservations: the room that is held for them, and their status."""
