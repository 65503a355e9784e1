package admin_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestNetChange: what differs after a span, the largest difference in requests first, what
// is gone before all; a share that went back to what it was last.
func TestNetChange(t *testing.T) {
	a, b := isobar.MustLocality("us/a"), isobar.MustLocality("us/b")
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	change := func(version uint64, services ...plan.ServiceChange) plan.Change {
		return plan.Change{Version: version, Previous: version - 1, Made: noon.Add(time.Duration(version) * time.Second), Trigger: plan.TriggerTick, Services: services}
	}
	moved := func(service string, before, after uint16) plan.ServiceChange {
		x := plan.ServiceChange{Service: service, Reason: "why " + service, Sites: []isobar.Locality{a, b}, Sources: []plan.SourceChange{{Source: a, Before: []uint16{10_000 - before, before}}}}
		if after <= 10_000 {
			x.Sources[0].After = []uint16{10_000 - after, after}
		}
		return x
	}
	const gone = 10_001
	op := &fixedHistory{changes: []plan.Change{ // newest first
		change(5, moved("back", 3000, 1000), moved("busy", 2000, 1000)), change(4, moved("back", 1000, 3000), moved("removed", 500, gone)),
		change(3, moved("busy", 500, 2000), moved("quiet", 0, 5000)),
	}}
	w := newWorld()
	w.current.Services = nil
	for _, x := range []struct {
		name   string
		demand float64
	}{{"back", 500}, {"busy", 1000}, {"quiet", 10}} {
		w.current.Services = append(w.current.Services, &plan.Service{Spec: &isobar.Service{Name: x.name}, Result: &assign.Result{Sources: []assign.SourceResult{{Source: a, Demand: x.demand}}}})
	}
	srv := start(t, w, func(o *admin.Options) { o.Operator = op })
	remote, err := admin.NewRemote(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.NetChange(t.Context(), "", noon, noon.Add(time.Minute))
	if err != nil || got.Count != 3 || got.Counted != 3 || got.ServiceCount != 4 || !got.Since.Equal(noon.Add(3*time.Second)) {
		t.Fatalf("%+v %v", got, err)
	}
	for i, want := range []struct {
		name    string
		removed bool
		rate    float64 // below 0: unknown
	}{{"removed", true, -1}, {"busy", false, 50}, {"quiet", false, 5}, {"back", false, 0}} {
		s := got.Services[i]
		if s.Service != want.name || s.Removed != want.removed || (s.Rate != nil) != (want.rate >= 0) || s.Rate != nil && (*s.Rate < want.rate-1e-6 || *s.Rate > want.rate+1e-6) {
			t.Errorf("%d: %+v, want %+v", i, s, want)
		}
	}
	if m := got.Services[3].Moves[0]; *m.Before != *m.After || m.High-m.Low < 0.19 || m.Changes != 2 {
		t.Errorf("%+v", m)
	}
	for query, code := range map[string]int{
		"": http.StatusBadRequest, "?from=2030-01-01T12:00:00Z&to=2030-01-01T12:00:00Z": http.StatusBadRequest,
		"?from=2030-01-01T12:00:00Z&to=2030-01-01T12:00:01Z&service=nobody": http.StatusNotFound, "?from=2030-01-01T12:00:00Z&to=2030-01-01T12:01:00Z&service=removed": http.StatusOK,
	} {
		if a := do(t, srv, "GET", "/v1/history/net"+query, ""); a.code != code {
			t.Errorf("%s: %d %s", query, a.code, a.body)
		}
	}
}

// TestNetChangeNamesEvents: what set changes off is listed whatever the difference after them,
// the largest first and with its cause alone; regular decisions and slight changes are not.
func TestNetChangeNamesEvents(t *testing.T) {
	a, b := isobar.MustLocality("us/a"), isobar.MustLocality("us/b")
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	change := func(version uint64, trigger, reason string, before, after uint16) plan.Change {
		return plan.Change{
			Version: version, Previous: version - 1, Made: noon.Add(time.Duration(version) * time.Second), Trigger: trigger,
			Services: []plan.ServiceChange{{Service: "checkout", Reason: reason, Sites: []isobar.Locality{a, b}, Sources: []plan.SourceChange{{
				Source: a, Before: []uint16{10_000 - before, before}, After: []uint16{10_000 - after, after},
			}}}},
		}
	}
	const cause = "50.0% of the requests moved off us/a: no healthy endpoint"
	paused := plan.Change{Version: 6, Previous: 5, Made: noon.Add(6 * time.Second), Trigger: plan.TriggerOperator, Who: "ann", Reason: "pause", About: "checkout", Services: []plan.ServiceChange{}}
	op := &fixedHistory{changes: []plan.Change{ // newest first
		paused, change(5, plan.TriggerTick, "demand rose", 9000, 0), change(4, plan.TriggerTopology, plan.NoCause, 7000, 9000),
		change(3, plan.TriggerHealth, "slight", 7050, 7000), change(2, plan.TriggerHealth, cause+"; 10.0% of the requests moved toward us/b", 2050, 7050),
		change(1, plan.TriggerHealth, "before the span", 0, 2050),
	}}
	srv := start(t, newWorld(), func(o *admin.Options) { o.Operator = op })
	remote, err := admin.NewRemote(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"", "checkout"} {
		got, err := remote.NetChange(t.Context(), service, noon.Add(2*time.Second), noon.Add(time.Minute))
		if err != nil || got.EventCount != 3 || len(got.Events) != 3 {
			t.Fatalf("%q: %+v %v", service, got, err)
		}
		for i, want := range []struct {
			version uint64
			why     string
		}{{2, cause}, {4, ""}, {6, ""}} {
			if m := got.Events[i]; m.Version != want.version || m.Why != want.why {
				t.Errorf("%q, %d: %+v, want %+v", service, i, m, want)
			}
		}
	}
}
