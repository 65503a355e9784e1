package convert_test

import (
	"slices"
	"testing"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// FuzzHealthReport: whatever a checker sends, what is kept is bounded, has an
// address, and a status that is one. The first message is read the same way
// whether or not it is the first thing on the stream.
func FuzzHealthReport(f *testing.F) {
	for _, m := range []proto.Message{
		wrapped(helloOf("probe-1")), helloOf("probe-1"),
		&healthv3.HealthCheckRequestOrEndpointHealthResponse{
			RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{
				EndpointHealthResponse: healthReport(healthOf("10.0.0.1", 80, 2), healthOf("::1", 80, 99)),
			},
		},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := convert.FirstHealthMessage(data); err == nil {
			if c, err := convert.CheckerFrom(m.Request, rpc.V3); err == nil && (c.Node.ID == "" || len(c.Node.ID) > 1024) {
				t.Errorf("checker %+v", c)
			}
		}
		m, err := convert.LaterHealthMessage(data)
		mustReadTheSame(t, data, m, err)
		if err != nil {
			return
		}
		left := 0
		entries, flat, err := convert.HealthEntries(m.Response, func(r convert.HealthRejection) {
			left++
			if r.Text == "" || r.Code == "" {
				t.Errorf("a rejection without reason: %+v", r)
			}
		})
		if err != nil {
			return
		}
		for _, e := range entries {
			if e.Status < isobar.Healthy || e.Status > isobar.Degraded || !e.Address.IsValid() || e.Address.Port() == 0 ||
				(e.Service == "") != flat || len(e.Metadata) > 64<<10 {
				t.Errorf("entry %+v", e)
			}
		}
		given := 0
		for _, c := range m.Response.GetClusterEndpointsHealth() {
			for _, l := range c.GetLocalityEndpointsHealth() {
				given += len(l.GetEndpointsHealth())
			}
		}
		if !flat && len(entries) > given {
			t.Errorf("%d entries of %d", len(entries), given)
		}
	})
}

// mustReadTheSame holds the decoder, which leaves out what is not looked at,
// against the plain one.
func mustReadTheSame(t *testing.T, data []byte, m convert.HealthMessage, err error) {
	t.Helper()
	var all healthv3.HealthCheckRequestOrEndpointHealthResponse
	if proto.Unmarshal(data, &all) != nil {
		return // it may be in what was left out
	}
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	if !proto.Equal(all.GetHealthCheckRequest(), m.Request) || (all.GetEndpointHealthResponse() == nil) != (m.Response == nil) {
		t.Fatalf("%v was read as %+v", &all, m)
	}
	want, wantFlat, wantErr := convert.HealthEntries(all.GetEndpointHealthResponse(), nil)
	got, flat, err := convert.HealthEntries(m.Response, nil)
	if !slices.Equal(got, want) || flat != wantFlat || (err == nil) != (wantErr == nil) {
		t.Errorf("%+v, %v, %v, want %+v, %v, %v", got, flat, err, want, wantFlat, wantErr)
	}
}

// FuzzSpecifier: every service that configuration accepts can be sent, and
// says the same after a trip over the wire.
func FuzzSpecifier(f *testing.F) {
	for _, check := range []string{
		`{"http": {"path": "/healthz", "host": "a.example:80", "method": "POST", "expected": [200, "204-299"], "headers": [{"name": "a", "value": "b c"}], "http2": true}, "tls": true}`,
		`{"tcp": {"send": "x", "receive": ["hex:00", "y"]}, "interval": "100ms", "jitter": "10ms"}`,
		`{"grpc": {"service": "a.B", "authority": "b"}, "tls": true, "unhealthy_threshold": 1000}`,
		`{"redis": {"key": "k"}, "timeout": "10ms"}`,
	} {
		f.Add([]byte(`{"health_checks": [` + check + `], "localities": [{"locality": "r/a", "endpoints": ["[::1]:80",
			{"address": "10.0.0.1:80", "health_check_config": {"address": "10.0.0.2", "port": 81, "hostname": "c", "disabled": false}}]}]}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _, err := config.DecodeService("checkout", data, config.Defaults{})
		if err != nil || len(s.HealthChecks) == 0 {
			return
		}
		c, err := convert.ClusterHealthCheckOf(&s, targetsOf(&s))
		if err != nil {
			t.Fatalf("configuration accepts what can't be sent: %v", err)
		}
		spec := convert.HealthCheckSpecifier([]*healthv3.ClusterHealthCheck{c}, time.Second)
		encoded, err := proto.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		var got healthv3.HealthCheckSpecifier
		if err := proto.Unmarshal(encoded, &got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(spec, &got) {
			t.Errorf("%v became %v", spec, &got)
		}
		if err := convert.CheckSpecifier(&got); err != nil {
			t.Error(err)
		}
		probed := 0
		for _, l := range s.Localities {
			for _, e := range l.Endpoints {
				if e.Check == nil || !e.Check.Disabled {
					probed++
				}
			}
		}
		for _, l := range got.GetClusterHealthChecks()[0].GetLocalityEndpoints() {
			probed -= len(l.GetEndpoints())
		}
		if probed != 0 || len(got.GetClusterHealthChecks()[0].GetHealthChecks()) != len(s.HealthChecks) {
			t.Errorf("%d endpoints too few in %v", probed, &got)
		}
	})
}
