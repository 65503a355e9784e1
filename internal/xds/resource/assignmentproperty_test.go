package resource_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// whole is a service with everything that can be set, its health and demand.
type whole struct {
	service isobar.Service
	table   health.Table
	sources []load.SourceLoad
	plan    *plan.Plan
}

func drawWhole(t *rapid.T) *whole {
	w := &whole{service: isobar.Service{Name: "checkout"}}
	for i := range rapid.IntRange(1, 5).Draw(t, "localities") {
		sl := isobar.ServiceLocality{
			Locality: isobar.MustLocality(fmt.Sprintf("r%d/z%d", i/2, i%2)), Metadata: drawMetadata(t),
			MaxRate: rapid.SampledFrom([]float64{0, 100, 1000}).Draw(t, "max_rate"),
		}
		for k := range rapid.IntRange(0, 4).Draw(t, "endpoints") {
			sl.Endpoints = append(sl.Endpoints, drawEndpoint(t, fmt.Sprintf("10.0.%d.%d:80", i, k)))
		}
		w.service.Localities = append(w.service.Localities, sl)
	}
	w.change(t)
	return w
}

func drawEndpoint(t *rapid.T, address string) isobar.Endpoint {
	e := isobar.Endpoint{
		Address: address, Weight: rapid.SampledFrom([]uint32{0, 0, 1, 9, 1 << 29}).Draw(t, "weight"),
		Health: rapid.SampledFrom([]isobar.HealthStatus{isobar.Unknown, isobar.Unknown, isobar.Healthy, isobar.Draining}).Draw(t, "configured"),
	}
	if rapid.Bool().Draw(t, "check") {
		e.Check = &isobar.EndpointCheck{
			Address: rapid.SampledFrom([]string{"", "10.9.9.9", "2001:db8::9"}).Draw(t, "probed"), Port: uint16(rapid.IntRange(0, 2).Draw(t, "port")),
			Hostname: rapid.SampledFrom([]string{"", "probe.example:81"}).Draw(t, "host"), Disabled: rapid.Bool().Draw(t, "disabled"),
		}
	}
	if rapid.Bool().Draw(t, "details") {
		e.Details = &isobar.EndpointDetails{Hostname: rapid.StringMatching(`[a-z.]{0,9}`).Draw(t, "hostname"), Metadata: drawMetadata(t)}
		for i := range rapid.IntRange(0, 3).Draw(t, "additional") {
			e.Details.AdditionalAddresses = append(e.Details.AdditionalAddresses, fmt.Sprintf("[2001:db8::%d:%s]:80", i+1, address[5:6]+address[7:8]))
		}
	}
	return e
}

func drawMetadata(t *rapid.T) isobar.Metadata {
	if rapid.Bool().Draw(t, "no metadata") {
		return ""
	}
	value := rapid.OneOf(
		rapid.Just[any](true), rapid.Map(rapid.String(), func(s string) any { return s }), rapid.Map(rapid.Float64(), func(x float64) any { return x }),
		rapid.Map(rapid.SliceOfN(rapid.String(), 0, 3), func(s []string) any {
			out := make([]any, len(s))
			for i := range s {
				out[i] = s[i]
			}
			return out
		}),
	)
	m, err := isobar.NewMetadata(map[string]map[string]any{
		"envoy.lb": rapid.MapOfN(rapid.String(), value, 0, 3).Draw(t, "metadata"),
	})
	if err != nil {
		return "" // too much
	}
	return m
}

// change draws settings, health and demand again.
func (w *whole) change(t *rapid.T) {
	w.service.Assignment = isobar.AssignmentSettings{
		EndpointStaleAfter:     rapid.SampledFrom([]time.Duration{0, 5 * time.Second, 90*time.Second + 1}).Draw(t, "stale_after"),
		OverprovisioningFactor: rapid.SampledFrom([]uint32{0, 100, 140, 177, isobar.MaxOverprovisioningFactor}).Draw(t, "factor"),
		WeightedPriorityHealth: rapid.Bool().Draw(t, "weighted"),
		ResourceTTL:            rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "ttl"),
	}
	w.service.MaxShed = rapid.SampledFrom([]float64{0, 0.4}).Draw(t, "max_shed")
	var states []health.Override
	for _, sl := range w.service.Localities {
		for _, e := range sl.Endpoints {
			if rapid.IntRange(0, 3).Draw(t, "told") == 0 {
				status := rapid.SampledFrom([]isobar.HealthStatus{isobar.Healthy, isobar.Unhealthy, isobar.Degraded}).Draw(t, "status")
				states = append(states, health.Override{Key: health.Key{Service: "checkout", Address: e.Address}, Status: status})
			}
		}
	}
	w.table = health.NewTable(states)
	w.sources = nil
	for _, at := range []string{"r0/z0", "r1/z0", "r9/z9"} {
		w.sources = append(w.sources, load.SourceLoad{Source: isobar.MustLocality(at), Demand: rapid.Float64Range(0, 900).Draw(t, at), Nodes: 2})
	}
}

// next makes the next plan of a copy of the service, as a reload does.
func (w *whole) next(t *rapid.T, trigger assign.Trigger) {
	text, err := json.Marshal(w.service)
	if err != nil {
		t.Fatal(err)
	}
	var copied isobar.Service
	if err := json.Unmarshal(text, &copied); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	in := plan.Input{Trigger: trigger, Topology: &isobar.Topology{Services: []isobar.Service{copied}}, Health: w.table, Previous: w.plan, Version: 1}
	if w.plan != nil {
		in.Version = w.plan.Version + 1
	}
	if trigger == assign.Tick {
		in.Load = &load.Snapshot{Services: []load.ServiceLoad{{Name: "checkout", Coverage: 1, Covered: true, Sources: w.sources}}}
	}
	if w.plan, err = plan.Next(in); err != nil {
		t.Fatal(err)
	}
}

// TestWholeAssignments: whatever is set, what goes out obeys the rules of all
// clients, says what is configured, and makes them do what is planned.
func TestWholeAssignments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWhole(t)
		for range 6 {
			w.next(t, rapid.SampledFrom([]assign.Trigger{assign.Tick, assign.Rebase}).Draw(t, "trigger"))
			s, _ := w.plan.Service("checkout")
			for i := range s.Result.Sources {
				r := &s.Result.Sources[i]
				m, err := resource.Assignment(r.Assignment)
				if err != nil {
					t.Fatalf("from %s: %v", r.Source, err)
				}
				if err := m.ValidateAll(); err != nil {
					t.Fatalf("from %s: %v", r.Source, err)
				}
				w.wantDetails(t, m)
				wantRealised(t, m, s, r)
			}
			before := w.plan
			w.next(t, assign.Rebase) // a reload that changes nothing
			wantUnchanged(t, before, w.plan)
			if rapid.Bool().Draw(t, "change") {
				w.change(t)
			}
		}
	})
}

// wantDetails holds a message against the configuration.
func (w *whole) wantDetails(t *rapid.T, m *endpointv3.ClusterLoadAssignment) {
	set := w.service.Assignment
	if got := m.GetPolicy().GetEndpointStaleAfter().AsDuration(); got != set.EndpointStaleAfter {
		t.Fatalf("stale after %s, want %s", got, set.EndpointStaleAfter)
	}
	if f := m.GetPolicy().GetOverprovisioningFactor(); f.GetValue() < set.OverprovisioningFactor && set.OverprovisioningFactor != dataplane.DefaultOverprovisioningFactor {
		t.Fatalf("factor %v, want at least %d", f, set.OverprovisioningFactor)
	}
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			_, spec, found := w.service.Endpoint(fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue()))
			if !found {
				t.Fatalf("%v is not configured", a)
			}
			var want isobar.EndpointDetails
			if spec.Details != nil {
				want = *spec.Details
			}
			metadata, err := resource.MetadataOf(e.GetMetadata())
			if err != nil || metadata != want.Metadata {
				t.Fatalf("metadata %s, %v, want %s", metadata, err, want.Metadata)
			}
			if got := e.GetEndpoint(); got.GetHostname() != want.Hostname || len(got.GetAdditionalAddresses()) != len(want.AdditionalAddresses) {
				t.Fatalf("%v, want %+v", got, want)
			}
			if off := e.GetEndpoint().GetHealthCheckConfig().GetDisableActiveHealthCheck(); off != (spec.Check != nil && spec.Check.Disabled) {
				t.Fatalf("probing %s: off is %v", spec.Address, off)
			}
		}
	}
}

// wantRealised asks what clients make of the message.
func wantRealised(t *rapid.T, m *endpointv3.ClusterLoadAssignment, s *plan.Service, r *assign.SourceResult) {
	cluster, err := resource.ClusterFrom(m)
	if err != nil {
		t.Fatal(err)
	}
	if len(cluster.Priorities) == 0 {
		return // the service has no endpoints
	}
	for _, kind := range []dataplane.Kind{dataplane.Envoy, dataplane.GRPC} {
		shares := map[isobar.Locality]float64{}
		for _, p := range dataplane.Predict(cluster, kind, dataplane.DefaultOptions()).Priorities {
			for _, l := range p.Localities {
				shares[l.Locality] += l.Share
			}
		}
		for i, planned := range r.Shares {
			if at := s.Sites[i].Group.Locality; math.Abs(shares[at]-planned) > 0.01 {
				t.Fatalf("%s from %s sends %v to %s, planned are %v", kind, r.Source, shares[at], at, planned)
			}
		}
	}
}

// wantUnchanged: what did not change is the same pointer, so that it is neither
// encoded nor sent again.
func wantUnchanged(t *rapid.T, before, after *plan.Plan) {
	a, _ := before.Service("checkout")
	b, _ := after.Service("checkout")
	for i := range b.Result.Sources {
		r := &b.Result.Sources[i]
		was := a.Result.Source(r.Source)
		if was == nil || was.Assignment == r.Assignment {
			continue
		}
		old, errOld := resource.Assignment(was.Assignment)
		now, errNow := resource.Assignment(r.Assignment)
		if errOld != nil || errNow != nil || proto.Equal(old, now) {
			t.Fatalf("from %s: another assignment of equal content (%v, %v)", r.Source, errOld, errNow)
		}
	}
}
