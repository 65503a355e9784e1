package resource_test

import (
	"bytes"
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
	"github.com/isobar-xds/isobar/internal/rpc"
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
			w.next(t, rapid.SampledFrom([]assign.Trigger{assign.Tick, assign.Reapply}).Draw(t, "trigger"))
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
			w.next(t, assign.Reapply) // a reload that changes nothing
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

// drawOddAssignment draws assignments of which about half break a rule.
func drawOddAssignment(t *rapid.T) *isobar.Assignment {
	odd := rapid.Bool().Draw(t, "odd")
	seldom := func(usual, unusual any) any {
		if odd && rapid.IntRange(0, 9).Draw(t, "seldom") == 0 {
			return unusual
		}
		return usual
	}
	a := &isobar.Assignment{
		Service: seldom("checkout", rapid.SampledFrom([]string{"", "a\xff"}).Draw(t, "service")).(string),
		Drop:    rapid.SampledFrom([]float64{0, 0, 0, 0.00004, 0.01, 0.1234, 0.5, 1}).Draw(t, "drop"),

		OverprovisioningFactor: rapid.SampledFrom([]uint32{0, 140, 140, 141, 1 << 31}).Draw(t, "factor"),
		WeightedPriorityHealth: rapid.IntRange(0, 9).Draw(t, "weighted") == 0,
		EndpointStaleAfter:     rapid.SampledFrom([]time.Duration{0, 0, 0, time.Minute}).Draw(t, "stale"),
		ResourceTTL:            rapid.SampledFrom([]time.Duration{0, 0, time.Minute}).Draw(t, "ttl"),
	}
	if odd {
		a.Drop = seldom(a.Drop, -0.5).(float64)
	}
	for p := range rapid.IntRange(0, 4).Draw(t, "priorities") {
		var localities []isobar.LocalityWeight
		least := seldom(1, 0).(int)
		for l := range rapid.IntRange(least, 4).Draw(t, "localities") {
			zone := fmt.Sprintf("z%d-%d", p, l)
			g := &isobar.EndpointGroup{Locality: isobar.Locality{
				Region: rapid.SampledFrom([]string{"", "eu", "Ω"}).Draw(t, "region"), Zone: seldom(zone, "same").(string),
				SubZone: seldom("", rapid.SampledFrom([]string{"s", "\xff"}).Draw(t, "sub_zone")).(string),
			}}
			g.Metadata = isobar.Metadata(seldom("", `{"a":{"b":true}}`).(string))
			for e := range rapid.IntRange(0, 3).Draw(t, "endpoints") {
				usual := fmt.Sprintf(rapid.SampledFrom([]string{"10.0.%d.%d:%d", "[2001:db8::%d:%d]:%d", "[::ffff:10.1.%d.%d]:%d"}).Draw(t, "form"), p*10+l, e, rapid.SampledFrom([]int{1, 80, 300, 65535}).Draw(t, "port"))
				w := isobar.WeightedEndpoint{
					Address: seldom(usual, rapid.SampledFrom([]string{"", "x:1", "10.0.0.1:0", "[fe80::1%eth0]:80", "10.9.9.9:9"}).Draw(t, "address")).(string),
					Weight:  seldom(rapid.SampledFrom([]uint32{1, 127, 128, 1 << 30}).Draw(t, "weight"), uint32(0)).(uint32),
					Health:  seldom(isobar.HealthStatus(rapid.IntRange(0, 5).Draw(t, "health")), isobar.HealthStatus(9)).(isobar.HealthStatus),
				}
				if seldom(false, true).(bool) {
					w.Config = &isobar.Endpoint{Address: w.Address, Details: &isobar.EndpointDetails{Hostname: "host"}}
				}
				g.Endpoints = append(g.Endpoints, w)
			}
			localities = append(localities, isobar.LocalityWeight{EndpointGroup: g, Weight: seldom(rapid.SampledFrom([]uint32{1, 300, 10_000, 1 << 31}).Draw(t, "locality weight"), uint32(0)).(uint32)})
		}
		if seldom(false, true).(bool) {
			localities = append(localities, isobar.LocalityWeight{Weight: 1})
		}
		a.Priorities = append(a.Priorities, localities)
	}
	return a
}

// encodeByMessages is the dumb twin of EncodeAssignment.
func encodeByMessages(as rpc.As, name string, a *isobar.Assignment) (*resource.Encoded, error) {
	m, err := resource.Assignment(a)
	if err != nil {
		return nil, err
	}
	m.ClusterName = name
	if err := resource.CheckAssignment(m, name); err != nil {
		return nil, err
	}
	return resource.EncodeAs(as, name, resource.Endpoints, m, a.ResourceTTL)
}

// Whether an assignment is written at once or through messages, the bytes are
// the same, and so are the refusals.
func TestAssignmentsAreEncodedAlike(t *testing.T) {
	good, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		a := drawOddAssignment(t)
		as := asVariant(rapid.IntRange(0, rpc.Variants-1).Draw(t, "as"))
		name := rapid.SampledFrom([]string{a.Service, a.Service, "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/checkout", ""}).Draw(t, "name")
		got, err := resource.EncodeAssignment(as, name, a)
		want, wantErr := encodeByMessages(as, name, a)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Fatalf("%v, want %v", err, wantErr)
		}
		if err != nil {
			refused++
			return
		}
		good++
		if got.Version != want.Version || !bytes.Equal(got.SotW, want.SotW) || !bytes.Equal(got.Delta, want.Delta) || !bytes.Equal(got.Body, want.Body) {
			t.Fatalf("encoded\n%x, want\n%x", got.Body, want.Body)
		}
	})
	if good == 0 || refused == 0 {
		t.Errorf("%d were good and %d refused", good, refused)
	}
}
