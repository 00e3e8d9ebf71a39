"""Requests of "would it fit?" from manifests, and the documents that answer them."""
