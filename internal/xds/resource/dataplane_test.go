package resource_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// part is an entry of endpoints: a locality, as JSON, and hosts by the end of
// their address, of which those with an exclamation mark are unhealthy.
func part(locality string, priority, weight int, hosts ...string) string {
	var es []string
	for _, h := range hosts {
		at, dead := strings.CutSuffix(h, "!")
		health := "HEALTHY"
		if dead {
			health = "UNHEALTHY"
		}
		es = append(es, fmt.Sprintf(`{"health_status": %q, "endpoint": {"address": {"socket_address": {"address": "10.0.0.%s", "port_value": 80}}}}`, health, at))
	}
	out := fmt.Sprintf(`"priority": %d, "lb_endpoints": [%s]`, priority, strings.Join(es, ","))
	if locality != "" {
		out += `, "locality": ` + locality
	}
	if weight > 0 {
		out += fmt.Sprintf(`, "load_balancing_weight": %d`, weight)
	}
	return "{" + out + "}"
}

const zone1, zone2 = `{"zone": "1"}`, `{"zone": "2"}`

// mergeTests are assignments with what should not be in one.
var mergeTests = []struct {
	name        string
	parts       []string
	envoy, grpc string // shares in percent, in order; grpc "" = refused
	panic       bool
}{
	{
		"the last weight counts", []string{part(zone1, 0, 1, "1"), part(zone1, 0, 9, "2"), part(zone2, 0, 9, "3")},
		"1: 50 (25 25), 2: 50 (50)", "", false,
	},
	{
		"weight, then none", []string{part(zone1, 0, 9, "1"), part(zone1, 0, 0, "2", "3"), part(zone2, 0, 3, "4")},
		"1: 75 (25 25 25), 2: 25 (25)", "1: 75 (75 0 0), 2: 25 (25)", false,
	},
	{
		"no weight, then one", []string{part(zone1, 0, 0, "1", "2"), part(zone2, 0, 3, "4"), part(zone1, 0, 9, "3")},
		"1: 75 (25 25 25), 2: 25 (25)", "1: 75 (0 0 75), 2: 25 (25)", false,
	},
	{
		"in another priority", []string{part(zone1, 0, 1, "1", "2!"), part(zone1, 1, 9, "3")},
		"1: 70 (70 0), 1: 30 (30)", "1: 100 (100 0), 1: 0 (0)", false,
	},
	{
		"one host three times", []string{part(zone1, 0, 1, "1", "1!", "1!")},
		"1: 100 (100 0 0)", "", false,
	},
	{
		"dead first", []string{part(zone1, 0, 1, "1!"), part(zone2, 1, 1, "1")},
		"1: 100 (100), 2: 0 (0)", "", true,
	},
	{
		"first in the message, not by priority", []string{part(zone2, 1, 1, "1"), part(zone1, 0, 1, "1", "2!")},
		"1: 0 (0 0), 2: 100 (100)", "", false,
	},
	{
		"twice, first without weight", []string{part(zone1, 0, 0, "1"), part(zone2, 0, 1, "1", "2")},
		"1: 0 (0), 2: 100 (0 100)", "1: 0 (0), 2: 100 (50 50)", false,
	},
	{
		"no locality", []string{part("", 0, 1, "1"), part(zone2, 0, 1, "2")},
		": 0 (0), 2: 100 (100)", "", false,
	},
	{
		"no locality, set and empty", []string{part("{}", 0, 3, "1"), part("", 0, 9, "2", "3"), part(zone2, 0, 1, "4")},
		": 75 (25 25 25), 2: 25 (25)", "", false,
	},
	{
		"an empty locality", []string{part("{}", 0, 3, "1"), part(zone2, 0, 1, "2")},
		": 75 (75), 2: 25 (25)", ": 75 (75), 2: 25 (25)", false,
	},
	{
		"a gap", []string{part(zone1, 1, 1, "1")},
		"1: 100 (100)", "", false,
	},
	{
		"a gap without weights", []string{part(zone1, 0, 0, "1"), part(zone2, 1, 1, "2")},
		"1: 100 (100), 2: 0 (0)", "", false,
	},
}

// TestClusterFromMerges: Envoy joins the parts of a locality within a priority
// and takes of each address the first, and no weight of what has no locality.
// gRPC skips parts without a weight and refuses what is then still there twice.
func TestClusterFromMerges(t *testing.T) {
	for _, tt := range mergeTests {
		t.Run(tt.name, func(t *testing.T) {
			m := ofParts(t, tt.parts)
			c, err := resource.ClusterFrom(m)
			if err != nil {
				t.Fatal(err)
			}
			envoy := dataplane.Predict(c, dataplane.Envoy, dataplane.DefaultOptions())
			if got := sharesText(envoy); got != tt.envoy {
				t.Errorf("envoy %s, want %s", got, tt.envoy)
			}
			if got := envoy.Priorities[0].Panic && envoy.Priorities[0].Load > 0; got != tt.panic {
				t.Errorf("panic %v, want %v", got, tt.panic)
			}
			switch err := resource.RefusedByGRPC(m); {
			case (err != nil) != (tt.grpc == ""):
				t.Errorf("gRPC refuses it: %v", err)
			case err == nil:
				if got := sharesText(dataplane.Predict(c, dataplane.GRPC, dataplane.DefaultOptions())); got != tt.grpc {
					t.Errorf("gRPC %s, want %s", got, tt.grpc)
				}
			}
		})
	}
}

func ofParts(t *testing.T, parts []string) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	m, _, err := resource.ReadAssignment([]byte(`{"cluster_name": "x", "endpoints": [` + strings.Join(parts, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sharesText lists localities and, in brackets, their hosts, in whole percent.
func sharesText(p dataplane.Prediction) string {
	var all []string
	for i := range p.Priorities {
		for _, l := range p.Priorities[i].Localities {
			var es []string
			for _, e := range l.Endpoints {
				es = append(es, fmt.Sprint(math.Round(100*e.Share)))
			}
			all = append(all, fmt.Sprintf("%s: %v (%s)", l.Locality.Zone, math.Round(100*l.Share), strings.Join(es, " ")))
		}
	}
	return strings.Join(all, ", ")
}

// TestRepeatedAddresses: the same address in another spelling is the same; what
// has no address, or is another endpoint of an internal listener, is not.
func TestRepeatedAddresses(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{`"socket_address": {"address": "::1", "port_value": 80}`, `"socket_address": {"address": "0:0:0:0:0:0:0:1", "port_value": 80}`, true},
		{`"socket_address": {"address": "10.0.0.1", "port_value": 80}`, `"socket_address": {"address": "10.0.0.1", "port_value": 81}`, false},
		{`"socket_address": {"address": "10.0.0.1", "port_value": 80}`, `"socket_address": {"address": "::ffff:10.0.0.1", "port_value": 80}`, false},
		{`"pipe": {"path": "/run/x"}`, `"pipe": {"path": "/run/x", "mode": 7}`, true},
		{`"envoy_internal_address": {"server_listener_name": "in", "endpoint_id": "1"}`, `"envoy_internal_address": {"server_listener_name": "in", "endpoint_id": "1"}`, true},
		{`"envoy_internal_address": {"server_listener_name": "in", "endpoint_id": "1"}`, `"envoy_internal_address": {"server_listener_name": "in", "endpoint_id": "2"}`, false},
		{``, ``, false},
	} {
		m, _, err := resource.ReadAssignment(fmt.Appendf(nil,
			`{"endpoints": [{"lb_endpoints": [{"endpoint": {"address": {%s}}}, {"endpoint": {"address": {%s}}}]}]}`, tt.a, tt.b))
		if err != nil {
			t.Fatal(err)
		}
		c, err := resource.ClusterFrom(m)
		if err != nil {
			t.Fatal(err)
		}
		es := c.Priorities[0].Localities[0].Endpoints
		if es[0].Repeated || es[1].Repeated != tt.want {
			t.Errorf("%s and %s: %+v, want repeated %v", tt.a, tt.b, es, tt.want)
		}
	}
}

// TestAdditionalAddresses are addresses to gRPC and not to Envoy, where it is
// about what came before.
func TestAdditionalAddresses(t *testing.T) {
	const one, two = `"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}`, `"address": {"socket_address": {"address": "10.0.0.2", "port_value": 80}}`
	m := ofParts(t, []string{`{"locality": {}, "load_balancing_weight": 1, "lb_endpoints": [
		{"endpoint": {` + one + `, "additional_addresses": [{` + two + `}]}}, {"endpoint": {` + two + `}}]}`})
	if err := resource.RefusedByGRPC(m); err == nil || !strings.HasPrefix(err.Error(),
		"endpoints[0].lb_endpoints[1].endpoint.address: 10.0.0.2:80 is already at endpoints[0].lb_endpoints[0].endpoint.additional_addresses[0]") {
		t.Errorf("gRPC: %v", err)
	}
	c, err := resource.ClusterFrom(m)
	if err != nil || c.Priorities[0].Localities[0].Endpoints[1].Repeated {
		t.Errorf("envoy: %+v, %v", c, err)
	}
}
