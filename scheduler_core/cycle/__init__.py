"""The scheduling cycle: from a popped pod to a bound one, or to the reason why not.

Owns the order of the steps and their unwinding. Must not know plugins by name. A cycle never awaits until its pod is
assumed, reserved and permitted, so no other code sees a half-done one; that is why there are no locks.
"""
