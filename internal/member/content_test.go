//go:build !race

package member

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/operators"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
	"github.com/isobar-xds/isobar/internal/store"
)

// fatal is what tests and properties have in common.
type fatal interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Helper()
}

// codecs makes codecs of replicas that have the same state of operators.
func codecs(tb testing.TB) (fresh func() *planCodec) {
	tb.Helper()
	registry, err := discovery.Open(tb.Context(), discovery.Options{Store: store.NewMemory(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	operated, digest := &Operated{registry: registry}, "digest"
	operated.shown.Store(3)
	inForce := &atomic.Pointer[string]{}
	inForce.Store(&digest)
	return func() *planCodec {
		return &planCodec{operated: operated, marks: operators.NewSampler(), inForce: inForce}
	}
}

// planned is a fleet of a few services to which things happen between plans.
type planned struct {
	network  *isobar.Network
	services map[string]isobar.Service
	rates    map[string]float64 // per service
	down     []health.Override
	paused   plan.Pauses
	found    *health.SavedMonitor
	now      time.Time
	plan     *plan.Plan
}

var plannedZones = []isobar.Locality{{Region: "us", Zone: "a"}, {Region: "us", Zone: "b"}, {Region: "eu", Zone: "a"}}

func newPlanned() *planned {
	network, _ := isobar.NewNetwork([]isobar.LatencyRule{{From: isobar.Locality{Region: "us"}, To: isobar.Locality{Region: "eu"}, MS: 80}})
	return &planned{network: network, services: map[string]isobar.Service{}, rates: map[string]float64{}, found: &health.SavedMonitor{}, now: time.Now()}
}

func plannedService(name string, endpoints int) isobar.Service {
	s := isobar.Service{Name: name}
	for z, at := range plannedZones {
		l := isobar.ServiceLocality{Locality: at, MaxRate: 300}
		for e := range endpoints {
			l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", z, e+1)})
		}
		s.Localities = append(s.Localities, l)
	}
	return s
}

// happen lets something happen, and reports whether a decision follows.
func (w *planned) happen(t *rapid.T) (decides bool) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "service")
	s, there := w.services[name]
	switch rapid.SampledFrom([]string{"add", "add", "remove", "endpoints", "order", "setting", "health", "pause", "found", "rate", "rate", "nothing"}).Draw(t, "event") {
	case "add":
		w.services[name], w.rates[name] = plannedService(name, rapid.IntRange(0, 3).Draw(t, "endpoints")), 100
	case "remove":
		delete(w.services, name)
	case "endpoints":
		w.change(name, there, func(l *isobar.ServiceLocality) {
			l.Endpoints = append(slices.Clone(l.Endpoints), isobar.Endpoint{Address: fmt.Sprintf("10.9.%d.9:80", len(l.Endpoints)), Weight: 2})
		})
	case "order":
		w.change(name, there, func(l *isobar.ServiceLocality) {
			l.Endpoints = slices.Clone(l.Endpoints)
			slices.Reverse(l.Endpoints)
		})
	case "setting":
		if there {
			s.Mode = rapid.SampledFrom([]isobar.Mode{isobar.ModeFull, isobar.ModeBounded, isobar.ModeObserve}).Draw(t, "mode")
			s.MaxShed = rapid.SampledFrom([]float64{0, 0.2}).Draw(t, "max_shed")
			w.services[name] = s
		}
	case "health":
		status := rapid.SampledFrom([]isobar.HealthStatus{isobar.Unhealthy, isobar.Draining, isobar.Degraded}).Draw(t, "status")
		w.down = append(slices.Clip(w.down), health.Override{Key: health.Key{Service: name, Address: "10.0.0.1:80"}, Status: status})
		if rapid.Bool().Draw(t, "recovers") {
			w.down = nil
		}
	case "pause":
		if _, rest, err := w.paused.Without(name); err == nil {
			w.paused = rest
		} else {
			w.paused = w.paused.With(plan.Pause{Service: name, Who: "ada", Since: w.now})
		}
	case "found":
		w.found = &health.SavedMonitor{Placement: health.Placement{Designations: []health.Designation{
			{Checker: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "checker"), Endpoints: []health.Key{{Service: name, Address: "10.0.0.1:80"}}},
		}}}
	case "rate":
		w.rates[name] = rapid.Float64Range(0, 900).Draw(t, "rate")
		return true
	default:
		return true
	}
	return false
}

// change changes a locality of a service.
func (w *planned) change(name string, there bool, change func(*isobar.ServiceLocality)) {
	if !there {
		return
	}
	s := w.services[name]
	s.Localities = slices.Clone(s.Localities)
	change(&s.Localities[0])
	w.services[name] = s
}

// next makes the next plan.
func (w *planned) next(t fatal, decides bool) *plan.Plan {
	t.Helper()
	w.now = time.Now()
	topology := &isobar.Topology{Network: w.network, Revision: 1}
	snapshot := &load.Snapshot{At: w.now}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		topology.Services = append(topology.Services, w.services[name])
		l := load.ServiceLoad{Name: name, Coverage: 1, Covered: true}
		for i, at := range plannedZones {
			rate := w.rates[name] / float64(i+1)
			l.Sources = append(l.Sources, load.SourceLoad{Source: at, Demand: rate, Raw: rate, Nodes: 1})
		}
		slices.SortFunc(l.Sources, func(a, b load.SourceLoad) int { return a.Source.Compare(b.Source) })
		snapshot.Services = append(snapshot.Services, l)
	}
	topology.Normalize()
	in := plan.Input{Now: w.now, Trigger: assign.Reapply, Topology: topology, Health: health.NewTable(w.down), Paused: w.paused, Previous: w.plan, Version: 1}
	if w.plan != nil {
		in.Version = w.plan.Version + 1
	}
	if decides {
		in.Trigger, in.Load = assign.Tick, snapshot
	}
	p, err := plan.Next(in)
	if err != nil {
		t.Fatal(err)
	}
	w.plan = p
	return p
}

// TestContentsFollowPlans asserts that the content of a plan that follows others is that of the same
// plan encoded from scratch, whatever changed between them, and that a replica which opens one after the other
// gets what one gets that opens the last alone.
func TestContentsFollowPlans(t *testing.T) {
	fresh := codecs(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newPlanned()
		leader, follower := fresh(), fresh()
		for range 10 {
			p := w.next(t, w.happen(t))
			content, err := leader.encode(p, plan.Origin{Who: "ada"}, w.found)
			if err != nil {
				t.Fatal(err)
			}
			whole := wantWhole(t, fresh(), w, &content)
			switch rapid.IntRange(0, 9).Draw(t, "then") {
			case 0: // the follower misses the plan
			case 1: // it leads
				wantOpened(t, follower, fresh(), content, whole)
				leader, follower = follower, leader
			default:
				wantOpened(t, follower, fresh(), content, whole)
			}
		}
	})
}

// wantWhole asserts that a content is that of the plan in force encoded from scratch, and returns that.
func wantWhole(t fatal, scratch *planCodec, w *planned, got *group.Content) group.Content {
	t.Helper()
	encoded, err := scratch.encode(w.plan, plan.Origin{Who: "ada"}, w.found)
	if err != nil {
		t.Fatal(err)
	}
	data := encoded.AppendTo(nil)
	if !bytes.Equal(got.AppendTo(nil), data) {
		t.Fatalf("the content after other plans is\n%s\nand from scratch\n%s", got.AppendTo(nil), data)
	}
	message := &peerv1.PlanContent{}
	if err := proto.Unmarshal(data, message); err != nil {
		t.Fatal(err)
	}
	if again, err := proto.Marshal(message); err != nil || !bytes.Equal(again, data) {
		t.Fatalf("the content is another one when it is encoded as one message, %v", err)
	}
	whole := replica.ContentOf(data)
	if got.Digest() != whole.Digest() || len(got.Parts()) != len(whole.Parts()) {
		t.Fatal("the content has other parts than it is cut into")
	}
	return whole
}

// wantOpened asserts that a codec that opened plans before gets the same from a content as one that did not.
func wantOpened(t fatal, follower, scratch *planCodec, content, whole group.Content) {
	t.Helper()
	got, err := follower.open(content)
	want, err2 := scratch.open(whole)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	a, b := got.(*opened), want.(*opened)
	if x, y := shownOf(t, a), shownOf(t, b); x != y {
		t.Fatalf("after other plans it opens\n%s\nand alone\n%s", x, y)
	}
}

// shownOf is what a replica shows of an opened plan, without times, which depend on when it was opened.
func shownOf(t fatal, o *opened) string {
	t.Helper()
	type service struct {
		Spec        *isobar.Service
		Sites       []assign.Site
		Paused      *plan.Pause
		Assignments []*isobar.Assignment
	}
	shown := struct {
		Version, Revision uint64
		Topology          []isobar.Service
		Services          []service
		Saved             []string
		Found             health.SavedMonitor
		Paused            plan.Pauses
		Who, Digest       string
		Sequence          uint64
	}{o.Plan.Version, o.Plan.Topology.Revision, o.Plan.Topology.Services, nil, nil, o.Health, o.Saved.Paused, o.Origin.Who, o.digest, o.operators.Sequence}
	for _, s := range o.Plan.Services {
		x := service{s.Spec, s.Sites, s.Paused, nil}
		for _, at := range plannedZones {
			x.Assignments = append(x.Assignments, o.Plan.Assignment(s.Spec.Name, at))
		}
		shown.Services = append(shown.Services, x)
	}
	for i := range o.Saved.Services {
		shown.Saved = append(shown.Saved, o.Saved.Services[i].Name)
	}
	data, err := json.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
