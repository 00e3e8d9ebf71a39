// Command e2e runs kube-scheduler's end-to-end tests, and nothing else of Kubernetes' suite, against the cluster of a
// kubeconfig.
package main

import (
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"

	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
)

// run records whether a test fails, as testing.T does for a suite that `go test` runs.
type run struct{ hasFailed bool }

func (r *run) Fail() { r.hasFailed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	result := &run{}
	ginkgo.RunSpecs(result, "kube-scheduler", suite, reporter)
	if result.hasFailed {
		os.Exit(1)
	}
}
