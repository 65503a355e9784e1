package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// BenchmarkCheckerProcess lets a server designate 10,000 HTTP endpoints at 5 s
// to one `isobar checker` for 30 s, and prints what the checker's process used:
// cores, most memory, probes/s. The endpoints are one web server that answers
// at once, in this process; each has a connection of its own.
func BenchmarkCheckerProcess(b *testing.B) {
	const endpoints, lasts = 10_000, 30 * time.Second
	port := webServer(b)
	for range b.N {
		p := &process{t: b, file: filepath.Join(b.TempDir(), "isobar.yaml"), xds: testhelp.FreePort(b), api: testhelp.FreePort(b)}
		if err := writeManyEndpoints(p, endpoints, port); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(p.kill)
		p.start()
		p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
		c := startChecker(b, p.xds, "checker", "us/a")
		<-time.After(lasts)
		m, err := metricsOf(b, c.metrics)
		if err != nil {
			b.Fatal(err)
		}
		if n := m[`isobar_checker_endpoints{status="healthy"}`]; n != endpoints {
			b.Errorf("%v endpoints are healthy, want %d", n, endpoints)
		}
		c.signal(os.Interrupt)
		state, err := c.cmd.Process.Wait()
		if err != nil {
			b.Fatal(err)
		}
		c.cmd = nil
		probes := 0.0
		for name, v := range m {
			if strings.HasPrefix(name, "isobar_checker_probes_total{") {
				probes += v
			}
		}
		b.ReportMetric((state.UserTime()+state.SystemTime()).Seconds()/lasts.Seconds(), "cores")
		if u, ok := state.SysUsage().(*syscall.Rusage); ok {
			b.ReportMetric(float64(u.Maxrss)/1024, "MiB-max") // KiB on Linux
		}
		b.ReportMetric(probes/lasts.Seconds(), "probes/s")
		b.ReportMetric(m["isobar_checker_late_probes_total"], "late")
		b.ReportMetric(0, "ns/op") // it is as long as it is made
		p.kill()
	}
}

// webServer answers every request at once and gives its port.
func webServer(b *testing.B) int {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	background(b, srv.Serve, l, func() { _ = srv.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// writeManyEndpoints configures a service with so many endpoints, all of which
// are probed at the same port of this machine.
func writeManyEndpoints(p *process, endpoints, port int) error {
	var w bytes.Buffer
	fmt.Fprintf(&w, "xds: {listen: %q}\nadmin: {listen: %q}\nstate_dir: %q\nservices:\n- name: web\n", p.xds, p.api, p.file+".state")
	w.WriteString("  health_checks: [{http: {path: /healthz}, interval: 5s}]\n  checkers: {count: 1, domains: 1}\n  localities:\n  - locality: us/a\n    endpoints:\n")
	for i := range endpoints {
		fmt.Fprintf(&w, "    - {address: \"10.0.%d.%d:80\", health_check_config: {address: 127.0.0.1, port: %d}}\n", i/250, i%250+1, port)
	}
	return os.WriteFile(p.file, w.Bytes(), 0o600)
}
