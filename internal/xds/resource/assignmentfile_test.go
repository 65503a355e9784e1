package resource_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

const plainFile = `{
  "cluster_name": "a",
  "endpoints": [{"locality": {"region": "us", "zone": "a"}, "loadBalancingWeight": 3, "priority": 1, "lb_endpoints": [
    {"endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}},
     "healthStatus": "DEGRADED", "load_balancing_weight": 7}]}],
  "policy": {"overprovisioningFactor": 120, "weighted_priority_health": true,
    "drop_overloads": [{"category": "x", "drop_percentage": {"numerator": 25, "denominator": "TEN_THOUSAND"}}]}
}`

// TestReadAssignment reads one assignment in all its wrappings.
func TestReadAssignment(t *testing.T) {
	want := dataplane.Cluster{
		Priorities: []dataplane.Priority{{}, {Localities: []dataplane.Locality{{
			Locality: isobar.Locality{Region: "us", Zone: "a"}, Weight: 3,
			Endpoints: []dataplane.Endpoint{{Address: "10.0.0.1:80", Weight: 7, Health: isobar.Degraded}},
		}}}},
		Drops: []float64{0.0025}, OverprovisioningFactor: 120, WeightedPriorityHealth: true,
	}
	typed := func(name string) string {
		return strings.Replace(plainFile, "{", `{"@type": "type.googleapis.com/`+name+`",`, 1)
	}
	const v3, v2 = "envoy.config.endpoint.v3.ClusterLoadAssignment", "envoy.api.v2.ClusterLoadAssignment"
	for name, text := range map[string]string{
		"plain":             plainFile,
		"any, v3":           typed(v3),
		"any, v2":           typed(v2),
		"response":          `{"versionInfo": "1", "resources": [` + typed(v3) + `], "typeUrl": "x"}`,
		"response, v2":      `{"@type": "type.googleapis.com/envoy.api.v2.DiscoveryResponse", "resources": [` + typed(v2) + `]}`,
		"delta":             `{"resources": [{"name": "a", "version": "1", "resource": ` + typed(v3) + `}], "nonce": "2"}`,
		"resource":          `{"@type": "a/envoy.service.discovery.v3.Resource", "resource": ` + typed(v3) + `}`,
		"unknown metadata":  strings.Replace(plainFile, `"priority": 1,`, `"priority": 1, "metadata": {"typed_filter_metadata": {"m": {"@type": "b/none.Such", "x": [1]}}},`, 1),
		"unknown fields":    strings.Replace(plainFile, `"priority": 1,`, `"priority": 1, "from_the_future": {"a": [1]},`, 1),
		"text before it, é": "{\"nonce\": \"é\",\n\"resources\": [" + typed(v3) + "]}",
	} {
		t.Run(name, func(t *testing.T) {
			m, warnings, err := resource.ReadAssignment([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.HasPrefix(name, "unknown"); got != (len(warnings) == 1) {
				t.Errorf("warnings %v", warnings)
			}
			got, err := resource.ClusterFrom(m)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

// TestReadAssignmentRefuses names the place and what is wanted.
func TestReadAssignmentRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", ``, "1:1: syntax error: "},
		{"list", `[1]`, "1:1: not an object"},
		{"syntax", "{\n  \"endpoints\": [,]}", "2:17: syntax error: unexpected token ,"},
		{"cut off", "{\"endpoints\": [\n", "not valid JSON"},
		{"type of a field", "{\n\"endpoints\": [{\"priority\": \"high\"}]}", `2:28: invalid value for uint32 field priority: "high"`},
		{"something else", `{"name": "x", "type": "EDS"}`, "1:1: this has no endpoints, policy or cluster_name: not a ClusterLoadAssignment; give one"},
		{"another type", `{"@type": "a/envoy.config.cluster.v3.Cluster"}`, `1:1: "a/envoy.config.cluster.v3.Cluster": not a ClusterLoadAssignment`},
		{"no resource", `{"resources": []}`, "1:15: 0 resources, want one"},
		{"two resources", `{"resources": [{"endpoints": []}, {"endpoints": []}]}`, "1:15: 2 resources, want one: cut the assignment out"},
		{"resources of another type", "{\"resources\": [\n {\"@type\": \"a/b.C\"}]}", `2:2: "a/b.C": not a ClusterLoadAssignment`},
		{"wrapped without end", strings.Repeat(`{"resource":`, 9) + "{}" + strings.Repeat("}", 9), "not a ClusterLoadAssignment"},
		{"deep", strings.Repeat(`{"endpoints":`, 20_000), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := resource.ReadAssignment([]byte(tt.text))
			var place *resource.PlaceError
			if !errors.As(err, &place) || !errors.Is(err, rpc.ErrMessage) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestClusterFrom: what data planes refuse is refused, with the field; all API versions
// of an endpoint have an address.
func TestClusterFrom(t *testing.T) {
	read := func(t *testing.T, text string) (dataplane.Cluster, error) {
		t.Helper()
		m, _, err := resource.ReadAssignment([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return resource.ClusterFrom(m)
	}
	for _, tt := range []struct{ text, want string }{
		{`{"endpoints": [{"priority": 129}]}`, "endpoints[0].priority: 129, want at most 128"},
		{`{"endpoints": [{"load_balancing_weight": 0}]}`, "endpoints[0].load_balancing_weight: 0, want at least 1"},
		{`{"endpoints": [{"load_balancing_weight": 4294967295}, {"load_balancing_weight": 1}]}`, "endpoints[1].load_balancing_weight: the weights of priority 0 sum to 2^32"},
		{`{"endpoints": [{"lb_endpoints": [{"load_balancing_weight": 0}]}]}`, "endpoints[0].lb_endpoints[0].load_balancing_weight: 0"},
		{`{"endpoints": [{"lb_endpoints": [{"load_balancing_weight": 4294967295}, {}]}]}`, "endpoints[0].lb_endpoints[1].load_balancing_weight: the weights of the locality"},
		{`{"endpoints": [{"lb_endpoints": [{"health_status": 77}]}]}`, "endpoints[0].lb_endpoints[0].health_status: 77 is no health status"},
		{`{"endpoints": [{"lb_endpoints": [{"endpoint_name": "x"}]}]}`, `endpoints[0].lb_endpoints[0].endpoint_name: "x" is not among named_endpoints`},
		{`{"endpoints": [{"leds_cluster_locality_config": {}}]}`, "endpoints[0].leds_cluster_locality_config: these endpoints are in another field"},
		{`{"policy": {"overprovisioning_factor": 0}}`, "policy.overprovisioning_factor: 0, want at least 1"},
		{`{"policy": {"drop_overloads": [{"drop_percentage": {"denominator": 9}}]}}`, "policy.drop_overloads[0].drop_percentage.denominator: 9, want HUNDRED"},
	} {
		if _, err := read(t, tt.text); !errors.Is(err, rpc.ErrMessage) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
	c, err := read(t, `{"named_endpoints": {"n": {"address": {"pipe": {"path": "/run/x"}}}}, "endpoints": [
		{"lb_endpoints": [{"endpoint_name": "n"}, {}, {"endpoint": {"address": {"envoy_internal_address": {"server_listener_name": "in"}}}},
			{"endpoint": {"address": {"socket_address": {"address": "::1", "named_port": "http"}}}}]},
		{"locality": {"zone": "z"}, "lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "h", "port_value": 1}}}}]}]}`)
	if err != nil || len(c.Priorities) != 1 || len(c.Priorities[0].Localities) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	var got []string
	for _, l := range c.Priorities[0].Localities {
		for _, e := range l.Endpoints {
			got = append(got, e.Address)
		}
	}
	if want := []string{"/run/x", "", "in", "[::1]:http", "h:1"}; !slices.Equal(got, want) {
		t.Errorf("addresses %q, want %q", got, want)
	}
}

// FuzzReadAssignment: whatever a file holds, what is read is an assignment that
// says the same when it is written and read again, and its prediction is one.
func FuzzReadAssignment(f *testing.F) {
	f.Add([]byte(plainFile))
	files, err := filepath.Glob("testdata/assignments/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, _, err := resource.ReadAssignment(text)
		if err != nil {
			var place *resource.PlaceError
			if !errors.As(err, &place) || place.Line < 1 || place.Column < 1 || place.Line > 1+strings.Count(string(text), "\n") {
				t.Errorf("an error without its place: %v", err)
			}
			return
		}
		if written, err := protojson.Marshal(m); err == nil { // not of metadata of unknown types
			again, _, err := resource.ReadAssignment(written)
			if err != nil && len(written) > len("{}") {
				t.Errorf("written as %s, refused: %v", written, err)
			}
			if err == nil && !proto.Equal(m, again) {
				t.Errorf("%v became %v", m, again)
			}
		}
		c, err := resource.ClusterFrom(m)
		if err != nil {
			return
		}
		all := dataplane.PredictAll(c, dataplane.DefaultOptions())
		for _, p := range []dataplane.Prediction{all.Envoy, all.GRPC} {
			sum := 0.0
			for i := range p.Priorities {
				for _, l := range p.Priorities[i].Localities {
					sum += l.Share
				}
			}
			if len(p.Priorities) != len(c.Priorities) || !(p.PassPercent >= 0 && p.PassPercent <= 100) || (sum != 0 && math.Abs(sum-1) > 1e-6) {
				t.Errorf("%+v of %+v", p, c)
			}
		}
	})
}
