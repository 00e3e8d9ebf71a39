"""The scheduling cycle of a pod or a gang, the binding cycle, and the feeds of cluster events.

A scheduling cycle does not await before its pod is assumed, reserved and permitted, so no other code sees an unfinished
cycle and no locks are needed. The exception is a cycle that waits for an extender; see
:mod:`scheduler_core.cycle.suspension`.
"""
