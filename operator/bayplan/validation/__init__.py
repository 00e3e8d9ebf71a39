"""Validation of manifests without a cluster."""
