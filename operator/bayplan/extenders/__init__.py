"""HTTP extenders; implements :class:`scheduler_core.ports.ExtenderClient`.

Follows kube-scheduler v1.36.3, pkg/scheduler/extender.go, and k8s.io/kube-scheduler v0.36.3, extender/v1/types.go, so
that a service written for kube-scheduler works here as well.
"""
