"""Reads from the API server: lists, watches and informers."""
