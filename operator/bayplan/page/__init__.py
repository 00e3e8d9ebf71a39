"""The read-only page: its documents, the stream that keeps them current, and its static files.

:mod:`bayplan.serving.served_page` serves them over HTTP.
"""
