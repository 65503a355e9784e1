package health_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// monitorWorld is a fleet of checkers that report to a monitor.
type monitorWorld struct {
	testing.TB

	monitor   *health.Monitor
	topology  *isobar.Topology
	connected []health.Checker
	operators health.Table
	now       time.Time
	says      func(checker string, k health.Key) isobar.HealthStatus
	silent    map[string]bool // connected, and says nothing
	mute      map[string]bool // sends reports in which nothing stands
	clients   *health.ClientReports
	last      health.Reaction
}

func newMonitorWorld(tb testing.TB, top *isobar.Topology, checkers []health.Checker) *monitorWorld {
	tb.Helper()
	o := &monitorWorld{TB: tb, topology: top, connected: checkers, now: start, silent: map[string]bool{}, mute: map[string]bool{}}
	o.monitor = health.NewMonitor(interval, tick, health.SavedMonitor{}, start)
	o.says = func(string, health.Key) isobar.HealthStatus { return isobar.Healthy }
	o.look()
	return o
}

// atRest has a service with n endpoints in each zone, all healthy, and each
// checkers in each zone.
func atRest(tb testing.TB, n, each int, zones ...isobar.Locality) *monitorWorld {
	tb.Helper()
	o := newMonitorWorld(tb, topology(service("web", n, zones...)), checkersIn(each, zones...))
	o.run(10 * time.Second)
	if s := o.monitor.VerdictTable().Summary("web"); s.Healthy != n*len(zones) {
		tb.Fatalf("%+v, want all healthy", s)
	}
	return o
}

// look lets the monitor look without reports.
func (o *monitorWorld) look() health.Reaction { return o.observe(nil) }

func (o *monitorWorld) observe(reports []health.Report) health.Reaction {
	o.last = o.monitor.Observe(health.Event{Now: o.now, Topology: o.topology, Operators: o.operators, Connected: o.connected, Reports: reports, Clients: o.clients})
	return o.last
}

// step lets d pass, after which all report.
func (o *monitorWorld) step(d time.Duration) health.Reaction {
	o.now = o.now.Add(d)
	var out []health.Report
	p := o.monitor.Placement()
	for i := range o.connected {
		c := &o.connected[i]
		if o.silent[c.ID] {
			continue
		}
		c.LastSeen = o.now
		for _, k := range p.Of(c.ID) {
			if h := o.says(c.ID, k); h != isobar.Unknown && !o.mute[c.ID] {
				out = append(out, health.Report{Checker: c.ID, Service: k.Service, Address: k.Address, Status: h, Arrived: o.now})
			}
		}
	}
	return o.observe(out)
}

// run lets time pass in report intervals.
func (o *monitorWorld) run(d time.Duration) {
	for end := o.now.Add(d); o.now.Before(end); {
		o.step(interval)
	}
}

// dead lets all checkers find these endpoints down and the rest up.
func (o *monitorWorld) dead(addresses ...string) {
	o.says = downWhere(func(k health.Key) bool { return slices.Contains(addresses, k.Address) })
}

// told is what clients are told of an endpoint of the service web.
func (o *monitorWorld) told(address string) isobar.HealthStatus {
	o.Helper()
	spec, _ := o.topology.Service("web")
	for i := range spec.Localities {
		for j := range spec.Localities[i].Endpoints {
			if e := &spec.Localities[i].Endpoints[j]; e.Address == address {
				return o.monitor.Table(o.operators).Status("web", e)
			}
		}
	}
	o.Fatalf("no endpoint %s", address)
	return isobar.Unknown
}

func (o *monitorWorld) verdict(address string) health.Verdict {
	o.Helper()
	list := o.monitor.VerdictTable().Explain("web")
	i := slices.IndexFunc(list, func(v health.Verdict) bool { return v.Address == address })
	if i < 0 {
		o.Fatalf("no endpoint %s", address)
	}
	return list[i]
}

// change edits the service web.
func (o *monitorWorld) change(edit func(*isobar.Service)) {
	spec, _ := o.topology.Service("web")
	next := *spec
	next.Localities = slices.Clone(spec.Localities)
	for i := range next.Localities {
		next.Localities[i].Endpoints = slices.Clone(next.Localities[i].Endpoints)
	}
	edit(&next)
	o.topology = topology(next)
}

// add adds endpoints to the i-th locality.
func (o *monitorWorld) add(i int, addresses ...string) {
	o.change(func(s *isobar.Service) {
		for _, a := range addresses {
			s.Localities[i].Endpoints = append(s.Localities[i].Endpoints, isobar.Endpoint{Address: a})
		}
	})
}

// restart replaces the monitor by one that knows what the first one saved.
func (o *monitorWorld) restart(edit func(*health.SavedMonitor)) {
	o.Helper()
	text, err := json.Marshal(o.monitor.Save())
	if err != nil {
		o.Fatal(err)
	}
	var saved health.SavedMonitor
	if err := json.Unmarshal(text, &saved); err != nil {
		o.Fatal(err)
	}
	if edit != nil {
		edit(&saved)
	}
	o.monitor = health.NewMonitor(interval, tick, saved, o.now)
}
