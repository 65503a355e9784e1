package kubernetes_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var (
	// servers is the directory of the programs that newCluster starts.
	servers string
	gone    = flag.Duration("gone", 10*time.Second, "for how long the API server is away in TestAPIGone")
)

func TestMain(m *testing.M) {
	flag.StringVar(&servers, "servers", "../../bin/kubernetes", "directory with etcd, kube-apiserver, kube-controller-manager and helm")
	flag.Parse()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "helm"} {
		if _, err := os.Stat(filepath.Join(servers, name)); err != nil {
			fmt.Fprintf(os.Stderr, "%v; run make test-kubernetes, which builds it\n", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
