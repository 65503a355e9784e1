package interop

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// proxy is a real Envoy, as one test sees it.
type proxy struct {
	*envoy.Process

	log *testhelp.Log
}

// envoyBinary returns the path of a real Envoy; a test without one fails.
func envoyBinary(t *testing.T, version string) string {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	path, err := envoy.Install(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startEnvoy runs an Envoy with a bootstrap until the test ends.
func startEnvoy(t *testing.T, version, bootstrap string) *proxy {
	t.Helper()
	return startEnvoyWith(t, envoy.Config{Path: envoyBinary(t, version), Bootstrap: []byte(bootstrap)})
}

// startEnvoyWith is startEnvoy with more settings.
func startEnvoyWith(t *testing.T, c envoy.Config) *proxy {
	t.Helper()
	p := &proxy{log: new(testhelp.Log)}
	c.Dir, c.Log = t.TempDir(), p.log
	var err error
	if p.Process, err = envoy.Start(t.Context(), c); err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("envoy: %s", p.log)
		}
	})
	return p
}

// envoyBootstrap is what `isobar bootstrap envoy` prints with the arguments.
func envoyBootstrap(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), isobarPath, append([]string{"bootstrap", "envoy"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
	}
	return string(out)
}

// Both versions of Envoy that the tests use run on this machine.
func TestEnvoyRuns(t *testing.T) {
	t.Parallel()
	for _, version := range []string{envoy.Newest, envoy.Oldest} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := startEnvoy(t, version, "node: {id: e, cluster: c}")
			if err := p.AwaitReady(t.Context(), patience); err != nil {
				t.Fatal(err)
			}
			info, err := p.Get(t.Context(), "/server_info")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(info), "/"+version+"/") {
				t.Errorf("server_info does not name version %s: %s", version, info)
			}
		})
	}
}
