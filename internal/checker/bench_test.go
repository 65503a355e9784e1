package checker_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// BenchmarkFleet runs 10,000 endpoints at 5 s for 15 s: the first probes, and
// two rounds. It prints probes/s, the cores that are used, and memory of an
// endpoint; "scheduling" has probes that cost nothing.
func BenchmarkFleet(b *testing.B) {
	const endpoints, interval, lasts = 10_000, 5 * time.Second, 15 * time.Second
	address := webProcess(b)
	for _, tt := range []struct {
		name   string
		change func(*checker.Options)
		hc     *corev3.HealthCheck
	}{
		{"scheduling", func(o *checker.Options) {
			o.NewProber = func(checker.Target, *corev3.HealthCheck) (checker.Prober, error) { return always(checker.Passed), nil }
		}, check(nil)},
		{"http", func(*checker.Options) {}, overHTTP()},
		{"tcp", func(*checker.Options) {}, check(nil)},
	} {
		b.Run(tt.name, func(b *testing.B) {
			tt.hc.Interval, tt.hc.NoTrafficInterval = durationpb.New(interval), durationpb.New(interval)
			tt.hc.Timeout = durationpb.New(time.Second)
			for range b.N {
				registry := prometheus.NewRegistry()
				before := memory()
				w := start(b, tt.change, func(o *checker.Options) { o.Registerer = registry })
				c := cluster("c", tt.hc)
				for i := range endpoints { // each with a name of its own, so that none is another
					e := endpoint(address)
					e.HealthCheckConfig = healthCheckConfig(fmt.Sprintf("host-%d.example", i), 0, "")
					c.LocalityEndpoints[0].Endpoints = append(c.LocalityEndpoints[0].Endpoints, e)
				}
				sp := spec(c)
				sp.Interval = durationpb.New(interval)
				s := w.stream()
				cpu := cpuTime(b)
				s.specify(b, sp)
				<-time.After(lasts)
				used := cpuTime(b) - cpu
				b.ReportMetric(used.Seconds()/lasts.Seconds(), "cores")
				b.ReportMetric(testhelp.Metric(b, registry, "isobar_checker_probes_total")/lasts.Seconds(), "probes/s")
				b.ReportMetric(testhelp.Metric(b, registry, "isobar_checker_late_probes_total"), "late")
				b.ReportMetric(testhelp.Metric(b, registry, "isobar_checker_probes_total")-testhelp.Metric(b, registry, "isobar_checker_probes_total", "passed"), "failed")
				b.ReportMetric(float64(memory()-before)/endpoints/1024, "KiB/endpoint")
				w.stop()
			}
		})
	}
}

// webProcess runs this program as a web server.
func webProcess(b *testing.B) (address string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), serverVariable+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscanln(out, &address); err != nil {
		b.Fatal(err)
	}
	return address
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
