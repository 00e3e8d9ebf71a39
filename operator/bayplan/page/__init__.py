"""The read-only page: its documents, the stream that keeps them current, and its static files.

:mod:`bayplan.serving.page_endpoints` serves them over HTTP.
"""
