"""Shadow profiles: profiles that decide the pods of a live profile again, and never bind."""
