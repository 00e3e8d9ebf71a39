"""What the API server accepts: the structure of Kubernetes' objects and its validation rules, without a server."""
