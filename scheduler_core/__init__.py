"""The scheduler core: queue, framework, columns and cycles.

The core contains no operator, HTTP or wall clock. It reaches the outside through the protocols of
:mod:`scheduler_core.ports`, so the same core runs in the operator, in ``bayplan simulate`` and in tests.
"""
