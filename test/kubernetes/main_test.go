package kubernetes_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

var (
	// servers is the directory of the programs that newCluster starts.
	servers string
	// envoyPath is the Envoy that runEnvoy starts.
	envoyPath string
	gone      = flag.Duration("gone", 10*time.Minute, "for how long the API server is away in TestAPIGone")
	pods      = flag.Int("pods", 300, "Pods that TestRolloutUnderLoad replaces")
)

// inside says that the process runs in the network namespace of the tests, and where the
// Envoy is that was installed before: nothing can be downloaded in it.
const inside = "ISOBAR_TEST_NAMESPACE"

func TestMain(m *testing.M) {
	flag.StringVar(&servers, "servers", "../../bin/kubernetes", "directory with etcd, kube-apiserver, controllers and helm")
	flag.Parse()
	for _, name := range []string{"etcd", "kube-apiserver", "controllers"} { // only tests of the chart need helm
		if _, err := os.Stat(filepath.Join(servers, name)); err != nil {
			fmt.Fprintf(os.Stderr, "%v; run make test-kubernetes, which builds it\n", err)
			os.Exit(1)
		}
	}
	if envoyPath = os.Getenv(inside); envoyPath == "" {
		path, err := envoy.Install(context.Background(), envoy.Newest)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(again(path))
	}
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"route", "add", "local", "10.128.0.0/16", "dev", "lo"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "ip %q: %v: %s\n", args, err, out)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// again runs the tests in a network namespace of their own, in which addresses of Pods are
// those of the loopback interface: API servers refuse 127.0.0.0/8 in EndpointSlices.
func again(installed string) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, append(os.Environ(), inside+"="+installed)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a network namespace for the tests:", err)
		return 1
	}
	return 0
}
