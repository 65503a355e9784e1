package xdsclient_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/xdsclient"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func in(locality string, addresses ...string) map[string][]string {
	return map[string][]string{locality: append([]string{}, addresses...)}
}

func (w *world) want(name string, want map[string][]string) {
	w.t.Helper()
	if got := w.endpoints(name); !reflect.DeepEqual(got, want) {
		w.t.Errorf("%s has %v, want %v", name, got, want)
	}
}

// TestSubscribes looks at every field of the requests, over both services.
func TestSubscribes(t *testing.T) {
	for _, ads := range []bool{false, true} {
		cfg := configuration("b", "a")
		cfg.ADS = ads
		cfg.Node.Locality = isobar.MustLocality("us/a/rack")
		inWorld(t, cfg, func(w *world) {
			t := w.t
			u, first := w.stream()
			if u.ads != ads {
				t.Errorf("the stream is of ADS: %v", u.ads)
			}
			n := first.GetNode()
			if n.GetId() != "i" || n.GetCluster() != "c" || n.GetLocality().GetSubZone() != "rack" || n.GetUserAgentName() != "isobar" {
				t.Errorf("node %v", n)
			}
			if first.GetTypeUrl() != resource.EndpointsURL || first.GetVersionInfo() != "" || first.GetResponseNonce() != "" {
				t.Errorf("first request %v", first)
			}
			if got := first.GetResourceNames(); !slices.Equal(got, []string{"eds-a", "eds-b"}) {
				t.Errorf("names %q", got)
			}
			ack := u.answer("1", assignment("a", "10.0.0.1"))
			if ack.GetVersionInfo() != "1" || ack.GetErrorDetail() != nil || ack.GetNode() != nil || len(ack.GetResourceNames()) != 2 {
				t.Errorf("acknowledged by %v", ack)
			}
			w.want("a", in("us/a", "10.0.0.1:80"))
			if w.endpoints("b") != nil {
				t.Error("b is in force before it was listed")
			}
			u.silent()
			if got := w.status("b").State; got != xdsclient.Waiting {
				t.Errorf("b is %s", got)
			}
		})
	}
}

// TestJoinsSettings: capacity is what is configured, endpoints what is listed;
// priorities and weights of localities of the other server don't matter.
func TestJoinsSettings(t *testing.T) {
	cfg := configuration("a")
	cfg.Services[0].Settings = isobar.Service{Name: "a", MaxShed: 0.1, Localities: []isobar.ServiceLocality{
		{Locality: isobar.MustLocality("us/a"), MaxRate: 100}, {Locality: isobar.MustLocality("us/c"), MaxRate: 300},
	}}
	inWorld(t, cfg, func(w *world) {
		t := w.t
		u, _ := w.stream()
		u.accepted("1", edited(assignment("a", "10.0.0.1", "10.0.0.2"), func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[0].Priority = 3
			m.Endpoints[0].LoadBalancingWeight = wrapperspb.UInt32(7)
			m.Endpoints[0].LbEndpoints[0].HealthStatus = corev3.HealthStatus_DRAINING
			m.Endpoints[0].LbEndpoints[1].LoadBalancingWeight = wrapperspb.UInt32(5)
			m.Endpoints = append(m.Endpoints, &endpointv3.LocalityLbEndpoints{
				Locality: &corev3.Locality{Region: "us", Zone: "b"}, LbEndpoints: []*endpointv3.LbEndpoint{endpoint("10.0.0.3")},
			})
			m.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: make([]*endpointv3.ClusterLoadAssignment_Policy_DropOverload, 2)}
		}))
		w.endpoints("a")
		o, err := w.registry.Get("a")
		if err != nil {
			t.Fatal(err)
		}
		want := isobar.Service{Name: "a", MaxShed: 0.1, Localities: []isobar.ServiceLocality{
			{Locality: isobar.MustLocality("us/a"), MaxRate: 100, Endpoints: []isobar.Endpoint{
				{Address: "10.0.0.1:80", Health: isobar.Draining}, {Address: "10.0.0.2:80", Weight: 5},
			}},
			{Locality: isobar.MustLocality("us/b"), Ceiling: 0.7, Endpoints: []isobar.Endpoint{{Address: "10.0.0.3:80"}}},
		}}
		if !reflect.DeepEqual(o.Service, want) || o.Owner != isobar.OwnerXDS {
			t.Errorf("in force is %+v of %s, want %+v", o.Service, o.Owner, want)
		}
		if got := w.status("a").Unlisted; len(got) != 1 || got[0].String() != "us/c" {
			t.Errorf("localities with settings, but without endpoints: %v", got)
		}
	})
}

// TestNACK: what breaks a rule is refused by name and reason, with the version
// before; what is right beside it is taken, and the last good stays.
func TestNACK(t *testing.T) {
	inWorld(t, configuration("a", "b"), func(w *world) {
		t := w.t
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"), assignment("b", "10.0.0.2"))
		r := u.answer("2", edited(assignment("a", "10.0.0.3"), func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[0].LbEndpoints[0].LoadBalancingWeight = wrapperspb.UInt32(0)
		}), assignment("b", "10.0.0.4"))
		text := r.GetErrorDetail().GetMessage()
		if r.GetVersionInfo() != "1" || !strings.Contains(text, "eds-a") || !strings.Contains(text, "load_balancing_weight") {
			t.Errorf("refused by version %q: %s", r.GetVersionInfo(), text)
		}
		w.want("a", in("us/a", "10.0.0.1:80"))
		w.want("b", in("us/a", "10.0.0.4:80"))
		if s := w.status("a"); s.State != xdsclient.Refused || !strings.Contains(s.Refused, "load_balancing_weight") {
			t.Errorf("a is %+v", s)
		}
		u.silent() // one answer to a response, not one to each resource
		if got := u.answer("2b", assignment("a", "10.0.0.5"), assignment("a", "10.0.0.6")); !strings.Contains(got.GetErrorDetail().GetMessage(), "twice") {
			t.Errorf("a name twice is answered by %v", got)
		}
		u.accepted("3", assignment("a", "10.0.0.3"), assignment("stranger", "10.0.0.9"))
		w.want("a", in("us/a", "10.0.0.3:80"))
		if got := w.endpoints("stranger"); got != nil {
			t.Errorf("a service that nobody asked for has %v", got)
		}
		const metrics = `
# HELP isobar_discovery_xds_responses_total Responses of the other control plane, by result: ack or nack.
# TYPE isobar_discovery_xds_responses_total counter
isobar_discovery_xds_responses_total{result="ack"} 2
isobar_discovery_xds_responses_total{result="nack"} 2
`
		if err := testutil.GatherAndCompare(w.metrics, strings.NewReader(metrics), "isobar_discovery_xds_responses_total"); err != nil {
			t.Error(err)
		}
	})
}

// TestRefusedAlone: a service that does not go together with the others is refused,
// and takes none of the same response with it.
func TestRefusedAlone(t *testing.T) {
	inWorld(t, configuration("a", "b", "c", "d", "e"), func(w *world) {
		t := w.t
		u, _ := w.stream()
		all := func(c, others string) (list []*endpointv3.ClusterLoadAssignment) {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				at := others
				if name == "c" {
					at = c
				}
				list = append(list, assignment(name, at))
			}
			return list
		}
		u.accepted("1", all("10.0.0.1", "10.0.0.1")...)
		text := u.answer("2", all(unfit, "10.0.0.2")...).GetErrorDetail().GetMessage()
		if !strings.Contains(text, "eds-c: ") || strings.Count(text, "eds-") != 1 {
			t.Errorf("refused: %s", text)
		}
		for _, name := range []string{"a", "b", "d", "e"} {
			w.want(name, in("us/a", "10.0.0.2:80"))
		}
		w.want("c", in("us/a", "10.0.0.1:80"))
		u.accepted("3", all("10.0.0.3", "10.0.0.3")...)
		w.want("c", in("us/a", "10.0.0.3:80"))
	})
}

// TestBadResponses: what can't even be attributed is refused, too, and a type
// that was not asked for ends the stream.
func TestBadResponses(t *testing.T) {
	inWorld(t, configuration("a"), func(w *world) {
		t := w.t
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"))
		if r := u.answer("2", &endpointv3.ClusterLoadAssignment{}); !strings.Contains(r.GetErrorDetail().GetMessage(), "cluster_name") {
			t.Errorf("no name: %v", r)
		}
		resp := &discoveryv3.DiscoveryResponse{VersionInfo: "3", Nonce: "3", TypeUrl: resource.EndpointsURL}
		resp.Resources = append(resp.Resources, nil)
		u.send <- resp
		if r := u.request(); !strings.Contains(r.GetErrorDetail().GetMessage(), "type_url") {
			t.Errorf("no type: %v", r)
		}
		u.send <- &discoveryv3.DiscoveryResponse{VersionInfo: "4", Nonce: "4", TypeUrl: resource.ClusterURL}
		again, _ := w.stream()
		again.accepted("4", assignment("a", "10.0.0.2"))
		w.want("a", in("us/a", "10.0.0.2:80"))
	})
}

// TestLostStream: the last good stays, streams are opened again after waits that
// grow up to half a minute, and a new stream begins without a version.
func TestLostStream(t *testing.T) {
	inWorld(t, configuration("a"), func(w *world) {
		t := w.t
		u, _ := w.stream()
		u.accepted("7", assignment("a", "10.0.0.1"))
		u.end <- status.Error(codes.Unavailable, "gone to lunch")
		longest := time.Duration(0)
		for range 12 {
			began := time.Now()
			u, first := w.stream()
			wait := time.Since(began)
			longest = max(longest, wait)
			if wait < time.Second || wait > 31*time.Second {
				t.Errorf("the stream was opened again after %v", wait)
			}
			if first.GetVersionInfo() != "" || first.GetResponseNonce() != "" || first.GetNode().GetId() != "i" {
				t.Errorf("the first request of the new stream is %v", first)
			}
			w.want("a", in("us/a", "10.0.0.1:80"))
			u.end <- status.Error(codes.Unavailable, "gone to lunch")
		}
		if longest < 10*time.Second {
			t.Errorf("the longest wait was %v", longest)
		}
		w.endpoints("a") // waits until the client knows of the end
		s, _ := w.client.Status()
		if s.Connected || !strings.Contains(s.Failure, "gone to lunch") || w.status("a").State != xdsclient.Kept {
			t.Errorf("status %+v", s)
		}
		u, _ = w.stream()
		u.accepted("1", assignment("a", "10.0.0.2"))
		w.want("a", in("us/a", "10.0.0.2:80"))
		if s, _ := w.client.Status(); !s.Connected || s.Failure != "" || s.NACKs != 0 || w.status("a").State != xdsclient.Current {
			t.Errorf("status %+v", s)
		}
	})
}

// TestRestartWithoutTheServer: a new process serves what was listed last, from
// its first topology on.
func TestRestartWithoutTheServer(t *testing.T) {
	cfg := configuration("a", "b")
	inWorld(t, cfg, func(w *world) {
		t := w.t
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"))
		w.endpoints("a")
		u.accepted("2", assignment("a", "10.0.0.2")) // within the pause between two writes: saved at the end
		w.endpoints("a")
		w.stop()
		w.down.Lock()
		w.start(cfg)
		w.want("a", in("us/a", "10.0.0.2:80"))
		if got := w.status("a"); got.State != xdsclient.Kept || got.Listed.IsZero() {
			t.Errorf("a is %+v", got)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // virtual time
		w.want("a", in("us/a", "10.0.0.2:80"))
		w.down.Unlock()
		u, _ = w.stream()
		u.accepted("1", assignment("a", "10.0.0.3"), assignment("b", "10.0.0.4"))
		w.want("a", in("us/a", "10.0.0.3:80"))
		w.want("b", in("us/a", "10.0.0.4:80"))
	})
}
