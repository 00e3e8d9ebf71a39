"""HTTP extenders; implements :class:`scheduler_core.ports.ExtenderClient`.

Follows kube-scheduler v1.37.1, pkg/scheduler/extender.go, and k8s.io/kube-scheduler v0.37.1, extender/v1/types.go, so
that a service written for kube-scheduler works here as well.
"""
