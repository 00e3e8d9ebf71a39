"""Record and replay: everything that enters the core in its order, and every decision."""
