"""The operator's HTTP server: health, metrics and debug endpoints."""
