//go:build tools

// Package upstream pins the modules that kube-scheduler's integration tests import.
package upstream

import (
	_ "k8s.io/kubernetes/test/integration/framework"
	_ "k8s.io/kubernetes/test/integration/util"
)
