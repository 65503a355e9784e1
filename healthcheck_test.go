package isobar_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
)

// Every health check that can be configured survives being written down.
func TestHealthCheckJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		duration := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "ns"))
		})
		bytes := rapid.SliceOfN(rapid.Byte(), 1, 6)
		in := isobar.HealthCheck{
			Protocol: isobar.CheckProtocol(rapid.IntRange(0, 3).Draw(t, "protocol")),
			Interval: duration.Draw(t, "interval"), Timeout: duration.Draw(t, "timeout"), Jitter: duration.Draw(t, "jitter"),
			UnhealthyThreshold: rapid.Uint32().Draw(t, "unhealthy"), HealthyThreshold: rapid.Uint32().Draw(t, "healthy"), TLS: rapid.Bool().Draw(t, "tls"),
		}
		switch in.Protocol {
		case isobar.CheckHTTP:
			start := rapid.IntRange(100, 598).Draw(t, "start")
			in.HTTP = &isobar.HTTPCheck{Path: "/", Expected: []isobar.StatusRange{{Start: start, End: rapid.IntRange(start+1, 600).Draw(t, "end")}}}
		case isobar.CheckTCP:
			in.TCP = &isobar.TCPCheck{Send: bytes.Draw(t, "send"), Receive: [][]byte{bytes.Draw(t, "receive"), []byte("hex:"), []byte("a\r\n")}}
		case isobar.CheckGRPC:
			in.GRPC = &isobar.GRPCCheck{Service: rapid.String().Draw(t, "service")}
		case isobar.CheckRedis:
			in.Redis = &isobar.RedisCheck{}
		}
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out isobar.HealthCheck
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if !reflect.DeepEqual(in, out) {
			t.Fatalf("%+v became %+v by %s", in, out, b)
		}
	})
}

func TestHealthCheckJSONErrors(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                                     "0 protocols",
		`{"tcp": {}, "redis": {}}`:               "2 protocols",
		`{"tcp": {}, "interval": "5"}`:           "missing unit",
		`{"tcp": {}, "interval": 5}`:             "cannot unmarshal",
		`{"tcp": {"send": "hex:0"}}`:             "odd length",
		`{"tcp": {"receive": "x"}}`:              "cannot unmarshal",
		`{"http": {"expected": ["200"]}}`:        "want a range",
		`{"http": {"expected": ["a-200"]}}`:      "want a range",
		`{"http": {"expected": [{"start": 1}]}}`: "cannot unmarshal",
	} {
		var c isobar.HealthCheck
		if err := json.Unmarshal([]byte(in), &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}
