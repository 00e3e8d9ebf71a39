"""HTTP connections to the API server: connection pools, credentials, limits and errors."""
