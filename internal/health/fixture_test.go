package health_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var (
	zoneA = isobar.MustLocality("eu/a")
	zoneB = isobar.MustLocality("eu/b")
	zoneC = isobar.MustLocality("eu/c")
	zoneF = isobar.MustLocality("us/f")
)

var everything = health.ProtocolsOf(isobar.CheckHTTP, isobar.CheckTCP, isobar.CheckGRPC, isobar.CheckRedis) | health.SpeaksV2 | health.SpeaksV3

// tcp is a check every 5 s with the default thresholds.
func tcp() isobar.HealthCheck {
	return isobar.HealthCheck{
		Protocol: isobar.CheckTCP, Interval: 5 * time.Second, Timeout: time.Second,
		UnhealthyThreshold: 3, HealthyThreshold: 2, TCP: &isobar.TCPCheck{},
	}
}

func checker(id string, at isobar.Locality) health.Checker {
	return health.Checker{ID: id, NodeID: id, Locality: at, Protocols: everything, Since: start, LastSeen: start}
}

// checkersIn returns n checkers in each zone.
func checkersIn(n int, zones ...isobar.Locality) (out []health.Checker) {
	for _, z := range zones {
		for i := range n {
			out = append(out, checker(fmt.Sprintf("%s-%d", z, i), z))
		}
	}
	return out
}

// service has n endpoints in each zone.
func service(name string, n int, zones ...isobar.Locality) isobar.Service {
	s := isobar.Service{Name: name, HealthChecks: []isobar.HealthCheck{tcp()}}
	for z, l := range zones {
		sl := isobar.ServiceLocality{Locality: l}
		for i := range n {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:80", z, i/250, i%250)})
		}
		s.Localities = append(s.Localities, sl)
	}
	return s
}

func topology(services ...isobar.Service) *isobar.Topology {
	t := &isobar.Topology{Services: services}
	t.Normalize()
	return t
}

// designated lists the checkers of an endpoint.
func designated(p *health.Placement, k health.Key) (out []string) {
	for _, d := range p.Designations {
		for _, e := range d.Endpoints {
			if e == k {
				out = append(out, d.Checker)
			}
		}
	}
	return out
}

const interval = 2 * time.Second // of reports

// fataler is what tests and properties have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is a fleet of checkers that report to a verdict table.
type world struct {
	fataler

	table     *health.VerdictTable
	topology  *isobar.Topology
	checkers  []health.Checker
	placement health.Placement
	now       time.Time
	// says is what a checker reports of an endpoint; Unknown: nothing.
	says    func(checker string, k health.Key) isobar.HealthStatus
	silent  map[string]bool
	ignored int
	settled bool // nobody is designated again
	clients *health.ClientReports
}

func newWorld(t fataler, top *isobar.Topology, checkers []health.Checker) *world {
	w := &world{fataler: t, topology: top, checkers: checkers, now: start, silent: map[string]bool{}}
	w.table = health.NewVerdictTable(health.Settings{ReportInterval: interval}, health.Saved{}, start)
	w.all(isobar.Healthy)
	return w
}

// all lets every checker say the same of everything.
func (w *world) all(h isobar.HealthStatus) {
	w.says = func(string, health.Key) isobar.HealthStatus { return h }
}

// place designates again.
func (w *world) place() {
	next := health.Place(health.PlacementInput{Topology: w.topology, Checkers: w.checkers, Previous: w.placement})
	w.placement = next
}

// reports returns what is reported in one interval.
func (w *world) reports() (out []health.Report) {
	for i := range w.checkers {
		c := &w.checkers[i]
		if w.silent[c.ID] {
			continue
		}
		for _, k := range w.placement.Of(c.ID) {
			if h := w.says(c.ID, k); h != isobar.Unknown {
				out = append(out, health.Report{Checker: c.ID, Service: k.Service, Address: k.Address, Status: h, Arrived: w.now})
			}
		}
	}
	return out
}

// step lets one report interval pass, and returns the services that changed for
// whatever reason.
func (w *world) step() (changed []string) {
	if !w.settled {
		w.place()
	}
	w.now = w.now.Add(interval)
	out := w.table.Observe(health.Observation{Now: w.now, Reports: w.reports(), Checkers: w.checkers, Placement: w.placement, Topology: w.topology, Clients: w.clients})
	w.ignored += out.Ignored
	changed = slices.Concat(out.Moved, out.Changed)
	slices.Sort(changed)
	return slices.Compact(changed)
}

func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.step()
	}
}

// status is the verdict as clients see it: Unknown if there is none.
func (w *world) status(service, address string) isobar.HealthStatus {
	h, _ := w.table.Verdicts().Status(service, address)
	return h
}

func (w *world) verdict(service, address string) health.Verdict {
	w.Helper()
	list := w.table.Explain(service)
	i := slices.IndexFunc(list, func(v health.Verdict) bool { return v.Address == address })
	if i < 0 {
		w.Fatalf("no endpoint %s in %s", address, service)
	}
	return list[i]
}

// count counts the endpoints of a service with a verdict.
func (w *world) count(service string, h isobar.HealthStatus) (n int) {
	for _, v := range w.table.Explain(service) {
		if v.Status == h {
			n++
		}
	}
	return n
}

func (w *world) lose(id string) {
	w.checkers = slices.DeleteFunc(slices.Clone(w.checkers), func(c health.Checker) bool { return c.ID == id })
}

// one has a service with one endpoint per zone and checkers in three zones.
func one(tb testing.TB) *world {
	tb.Helper()
	return newWorld(tb, topology(service("web", 1, zoneA, zoneB, zoneC)), checkersIn(1, zoneA, zoneB, zoneC))
}

const first, second, third = "10.0.0.0:80", "10.1.0.0:80", "10.2.0.0:80"
