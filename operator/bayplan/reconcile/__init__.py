"""From custom resources to what should run, and from what runs to status; pure functions of whole states."""
