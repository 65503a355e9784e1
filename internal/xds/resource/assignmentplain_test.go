package resource_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

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
