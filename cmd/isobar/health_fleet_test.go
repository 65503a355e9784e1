package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

const (
	probeInterval  = time.Second
	probeTimeout   = time.Second
	probeThreshold = 2
	reportInterval = time.Second
)

// checkedFleet is a server, real targets of all protocols, checkers in three
// zones and a real xDS client.
type checkedFleet struct {
	*process

	network  *network
	services []string
	targets  map[string][]target
	checkers []*checkerProcess
	watch    *watcher
	stalls   *stalls
}

// checkedService is how a service is probed and what its servers are.
type checkedService struct {
	name, probe string
	start       func(testing.TB, *network) target
}

var checkedServices = []checkedService{
	{"web", "http: {path: /healthz}", newWeb},
	{"line", `tcp: {send: "ping\n", receive: "pong"}`, newLine},
	{"rpc", "grpc: {}", newRPC},
	{"cache", "redis: {key: maintenance}", newCache},
}

var checkerZones = []string{"us/a", "us/a", "us/b", "us/b", "us/c"}

// endpointsEach is the endpoints of a service, half of them in each of two
// zones: one that fails, and even two, are no mass failure.
const endpointsEach = 4

func newCheckedFleet(tb testing.TB) *checkedFleet {
	tb.Helper()
	dir := tb.TempDir()
	f := &checkedFleet{
		process: &process{t: tb, file: filepath.Join(dir, "isobar.yaml"), xds: testhelp.FreePort(tb), api: testhelp.FreePort(tb)},
		network: newNetwork(), targets: map[string][]target{}, stalls: watchStalls(tb),
	}
	var c bytes.Buffer
	fmt.Fprintf(&c, "xds: {listen: %q}\nadmin: {listen: %q}\ntick: 1s\nreport_interval: %s\nstate_dir: %q\nservices:\n",
		f.xds, f.api, reportInterval, filepath.Join(dir, "state"))
	for _, s := range checkedServices {
		f.services = append(f.services, s.name)
		fmt.Fprintf(&c, "- name: %s\n  health_checks: [{%s, interval: %s, timeout: %s, unhealthy_threshold: %d, healthy_threshold: 2}]\n  localities:\n",
			s.name, s.probe, probeInterval, probeTimeout, probeThreshold)
		for i := range endpointsEach {
			f.targets[s.name] = append(f.targets[s.name], s.start(tb, f.network))
			if i%2 == 1 {
				fmt.Fprintf(&c, "  - {locality: us/%c, endpoints: [%q, %q]}\n",
					'a'+rune(i/2), f.targets[s.name][i-1].Address(), f.targets[s.name][i].Address())
			}
		}
	}
	if err := os.WriteFile(f.file, c.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.kill)
	f.start()
	f.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	f.startCheckers()
	f.watch = newWatcher(tb, f.xds, f.services...)
	f.eventually("all endpoints healthy", func() bool { return f.allHealthy() })
	return f
}

func (f *checkedFleet) startCheckers() {
	f.checkers = nil
	for i, z := range checkerZones {
		f.checkers = append(f.checkers, startChecker(f.t, f.xds, fmt.Sprintf("checker-%d", i), z))
	}
}

func (f *checkedFleet) allHealthy(except ...target) bool {
	for _, s := range f.services {
	next:
		for _, e := range f.targets[s] {
			for _, x := range except {
				if e == x {
					continue next
				}
			}
			if h, _ := f.watch.of(s, e.Address()); h != "HEALTHY" {
				return false
			}
		}
	}
	return true
}

// eventually polls for at most two minutes and tells how long it took, without
// stalls of the machine.
func (f *checkedFleet) eventually(what string, ok func() bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for time.Since(began) < 2*time.Minute {
		if ok() {
			return time.Since(began) - f.stalls.between(began, time.Now())
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // real processes: bounded polling
	}
	f.t.Fatalf("not within two minutes: %s; the client sees %v", what, f.sights())
	return 0
}

func (f *checkedFleet) sights() map[string]map[string]string {
	f.watch.mu.Lock()
	defer f.watch.mu.Unlock()
	return maps.Clone(f.watch.health)
}

// steadily polls for a time, while which no endpoint's health may change for
// the client. Those that are excepted may.
func (f *checkedFleet) steadily(why string, d time.Duration, except ...target) {
	f.t.Helper()
	before, began := f.watch.all(), time.Now()
	for time.Since(began) < d {
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // real processes: that nothing happens takes its time
		f.unchanged(why, before, except...)
	}
}

// unchanged compares with an earlier watch.all.
func (f *checkedFleet) unchanged(why string, before map[string]int, except ...target) {
	f.t.Helper()
	after := f.watch.all()
	for _, e := range except {
		delete(after, e.Address())
	}
	for address, n := range after {
		if n != before[address] {
			f.t.Fatalf("%s: the verdict on %s changed; the client sees %v", why, address, f.sights())
		}
	}
}

// verdicts is what operators are told of a service.
func (f *checkedFleet) verdicts(service string) health.ServiceReport {
	f.t.Helper()
	var list admin.VerdictList
	body, err := get(f.t, "http://"+f.api+"/v1/verdicts?service="+service)
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil || len(list.Services) != 1 {
		f.t.Fatalf("verdicts on %s: %s %v", service, body, err)
	}
	return list.Services[0]
}

func (f *checkedFleet) target(service, address string) target {
	f.t.Helper()
	i := slices.IndexFunc(f.targets[service], func(e target) bool { return e.Address() == address })
	if i < 0 {
		f.t.Fatalf("%s has no endpoint %s", service, address)
	}
	return f.targets[service][i]
}

func (f *checkedFleet) checker(id string) *checkerProcess {
	f.t.Helper()
	i := slices.IndexFunc(f.checkers, func(c *checkerProcess) bool { return c.id == id })
	if i < 0 {
		f.t.Fatalf("there is no checker %s", id)
	}
	return f.checkers[i]
}
