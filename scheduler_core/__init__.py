"""The scheduler core: queue, framework, columns and cycles, with no operator, HTTP or wall clock in it.

Everything that reaches the outside goes through the protocols of :mod:`scheduler_core.ports`, so the same core runs
in the operator, in ``bayplan simulate`` and in tests on virtual time.
"""
