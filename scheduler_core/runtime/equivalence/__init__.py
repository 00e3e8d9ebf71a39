"""Reuse of plugin results between pods of one class."""
