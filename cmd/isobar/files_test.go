//go:build unix

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// A flood of connections of clients takes no file from operators, from probes
// and from the state directory.
func TestConnectionsLeaveFilesToOperators(t *testing.T) {
	p := newProcess(t, "", []isobar.Locality{isobar.MustLocality("us-east/a")}, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "isobar") // the test binary runs the command of its name
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	p.stderr = new(testhelp.Log)
	p.cmd = exec.CommandContext(context.Background(), "sh", "-c", `ulimit -n 512 && exec "$0" serve -c "$1"`, program, p.file)
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.await("plan", func(admin.PlanView) bool { return true })
	if !strings.Contains(p.stderr.String(), "open_files=512 connections=384") {
		t.Errorf("the log does not say how many connections the limit allows: %s", p.stderr)
	}
	for range 600 {
		c, err := net.Dial("tcp", p.xds)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	get := func(page string) string {
		resp, err := http.Get("http://" + p.api + page)
		if err != nil {
			t.Fatalf("%s among a flood of connections: %v", page, err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v", page, resp.Status, err)
		}
		return string(body)
	}
	testhelp.Eventually(t, "half of the connections, which one address may have", func() bool {
		return strings.Contains(get("/metrics"), "\nisobar_xds_connections 192\n")
	})
	get("/livez")
	get("/readyz")
}
