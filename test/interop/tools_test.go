package interop

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestTools: command-line tools ask for endpoints over TLS with a certificate that
// the server demands, and get none without it.
func TestTools(t *testing.T) {
	t.Parallel()
	ca := identitytest.NewCA(t)
	dir, own := t.TempDir(), t.TempDir()
	files := ca.Write(dir, identitytest.Leaf{DNS: []string{"localhost", "contour"}}) // which contour asks for, whatever the address
	ca.Write(own, shopEnvoy)
	s := prepareIsobar(t, time.Second, fmt.Sprintf(", tls: {cert: %q, key: %q, client_ca: %q}", files.Cert, files.Key, files.ClientCA), split)
	s.run()
	authority, cert, key := filepath.Join(own, "ca.pem"), filepath.Join(own, "cert.pem"), filepath.Join(own, "key.pem")
	local := func(address string) string { return "localhost" + address[strings.LastIndexByte(address, ':'):] }
	const method = "envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints"
	body := func(names string) string { return `{"` + names + `": ["split"], ` + node("tool") + `}` }
	curl := func(api, names string) func(flags ...string) *exec.Cmd {
		return func(flags ...string) *exec.Cmd {
			return exec.CommandContext(t.Context(), "curl", append(append([]string{"--silent", "--show-error", "--fail", "--cacert", authority}, flags...),
				"--json", body(names), "https://"+local(s.rest)+"/"+api+"/discovery:endpoints")...)
		}
	}
	contour := func(delta ...string) func(flags ...string) *exec.Cmd {
		return func(flags ...string) *exec.Cmd {
			path := goTool(t, "github.com/projectcontour/contour/cmd/contour", contourVersion) // which takes minutes the first time
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			t.Cleanup(cancel)
			return exec.CommandContext(ctx, path, append(append([]string{"cli", "eds", "split", "--contour=" + local(s.xds), "--node-id=tool", "--cafile=" + authority}, flags...), delta...)...)
		}
	}
	pair := func(certFlag, keyFlag string) []string { return []string{certFlag, cert, keyFlag, key} }
	for _, tool := range []struct {
		name    string
		command func(flags ...string) *exec.Cmd
		flags   []string
	}{
		{nameCurl3, curl(v3, "resource_names"), pair("--cert", "--key")},
		{nameCurl2, curl(v2, "resourceNames"), pair("--cert", "--key")},
		{nameGrpcurl, func(flags ...string) *exec.Cmd {
			path := goTool(t, "github.com/fullstorydev/grpcurl/cmd/grpcurl", grpcurlVersion)
			return exec.CommandContext(t.Context(), path, append(append([]string{"-cacert", authority}, flags...), "-d", body("resource_names"), local(s.xds), method)...)
		}, pair("-cert", "-key")},
		{contourStream, contour(), pair("--cert-file", "--key-file")},
		{contourDelta, contour("--delta"), pair("--cert-file", "--key-file")},
	} {
		t.Run(tool.name, func(t *testing.T) {
			t.Parallel()
			defer func() { seen.ran(tool.name, overTLS, !t.Failed()) }()
			if out := endpointsOf(t, tool.command(tool.flags...)); !strings.Contains(out, "127.0.0.1") {
				t.Errorf("with a certificate it gets: %s", out)
			}
			if out := endpointsOf(t, tool.command()); strings.Contains(out, "127.0.0.1\"") {
				t.Errorf("without a certificate it gets: %s", out)
			}
		})
	}
}

// endpointsOf runs a tool until it ends, or until it has printed an endpoint, and
// returns what it printed.
func endpointsOf(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	log := new(testhelp.Log)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // what it printed says how it went
	}()
	for {
		select {
		case <-ended:
			return log.String()
		case <-time.After(100 * time.Millisecond):
			if strings.Contains(log.String(), "port_value") || strings.Contains(log.String(), "portValue") {
				_ = cmd.Process.Kill() // it watches on
				<-ended
				return log.String()
			}
		}
	}
}
