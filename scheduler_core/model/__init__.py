"""Decoded Kubernetes objects, and the rules that the API defines on them: quantities, selectors, taints, requests.

The informers, the simulator and the tests use the same structs, so tests cover what is decoded from the wire.
"""
