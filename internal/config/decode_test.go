package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func TestDecodeServices(t *testing.T) {
	const one = `{name: a, localities: [{locality: x/y, endpoints: ["10.0.0.1:80"]}]}`
	for _, test := range []struct {
		name, in, want string
		services       int
	}{
		{name: "list", in: "[" + one + "]", services: 1},
		{name: "empty list", in: "[]"},
		{name: "object", in: "services: [" + one + "]", services: 1},
		{name: "one object", in: one, want: `unknown field "name"`},
		{name: "no name", in: "[{localities: []}]", want: `body:1:2: [0]: field "name" is missing`},
		{name: "twice", in: "[" + one + "," + one + "]", want: "body:1:78: [1].name: service a is given twice"},
		{name: "null item", in: "[~]", want: "body:1:2: [0]: is null"},
		{name: "nothing", in: "", want: "the document is empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _, err := config.DecodeServices([]byte(test.in), config.Defaults{Mode: isobar.ModeObserve})
			if test.want != "" {
				if !errors.Is(err, isobar.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("error %v, want %q", err, test.want)
				}
				return
			}
			if err != nil || len(got) != test.services {
				t.Fatalf("%d services, %v, want %d", len(got), err, test.services)
			}
			for _, s := range got {
				if s.Mode != isobar.ModeObserve {
					t.Errorf("mode %v, want the default", s.Mode)
				}
			}
		})
	}
}

func TestServiceNameOfURL(t *testing.T) {
	body := []byte(`{localities: [{locality: x/y, endpoints: ["10.0.0.1:80"]}]}`)
	for _, name := range []string{"a b", "-a", "a/", "a//b", "a/../b", "ä", strings.Repeat("x", 254)} {
		_, _, err := config.DecodeService(name, body, config.Defaults{})
		if !errors.Is(err, isobar.ErrInvalid) {
			t.Errorf("%q is accepted (%v)", name, err)
		}
	}
	for _, name := range []string{"outbound|80||pay.svc:v1", "shop/checkout/http", strings.Repeat("x", 253)} {
		s, _, err := config.DecodeService(name, body, config.Defaults{})
		if err != nil || s.Name != name {
			t.Errorf("%q: got %q, %v", name, s.Name, err)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"too large", strings.Repeat("#", config.MaxBytes+1), "x:1:1: 33554433 bytes are too many; keep it within 33554432 bytes"},
		{
			"too dense", "services: [" + strings.Repeat("a,", 1<<20),
			"x:1:1290560: the values up to here take more memory than the 2097163 bytes of the document may; " +
				"write longer values, or several documents; the memory is enough for endpoints of services",
		},
		{
			"too dense, in a rare form", "tick: 5s\nservices: [" + strings.Repeat("\"\\u0061\",", 1<<18) + "]\n",
			"x:2:12: an error, or a rare form of YAML, in a document of more than 262144 lines, brackets, separators and quoted texts; " +
				"large documents are read with names and texts of one line only, without tabs, escapes in quotes, empty values, comments in brackets, | and >",
		},
		{"not UTF-8", "tick: 5s\nlog: \xff\n", "x:2:6: not UTF-8 text; save the file as UTF-8"},
		{"long text", "tick: " + strings.Repeat("x", 1<<16), `x:1:7: tick: "` + strings.Repeat("x", 60) + `..." is not a duration; write it like 5s or 1m30s`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := config.Decode("x", []byte(test.in))
			if err == nil || err.Error() != test.want {
				t.Errorf("error %.200v, want %s", err, test.want)
			}
		})
	}
}

// A matrix of 650 regions has 210,000 pairs. Its short values took more memory than documents
// of this size might.
func TestLatenciesOfManyPairs(t *testing.T) {
	for _, layout := range []string{"  - {from: r%d, to: r%d, ms: 5}\n", "  - {\"from\": \"r%d\", \"to\": \"r%d\", \"ms\": 5}\n"} {
		var b strings.Builder
		b.WriteString("services: []\nnetwork:\n  latency_ms:\n")
		for from := range 650 {
			for to := range from {
				fmt.Fprintf(&b, layout, from, to)
			}
		}
		if _, _, err := config.Decode("x", []byte(b.String())); err != nil {
			t.Errorf("%.30q: %.200v", layout, err)
		}
	}
}

// A document must cost time in proportion to its size: the inputs here are
// shapes for which parsers are known to be slow or to recurse. It is the time of
// the processor that counts: a machine that has other things to do takes longer.
func TestHostileShapesAreRefusedQuickly(t *testing.T) {
	const n = 100_000
	for name, in := range map[string]string{
		"fields":        strings.Repeat("a: 1\n", n),
		"flow fields":   "{" + strings.Repeat("a: 1,", n) + "}",
		"open lists":    strings.Repeat("[", n),
		"open objects":  strings.Repeat("{", n),
		"objects":       strings.Repeat("{a: ", n),
		"dashes":        strings.Repeat("- ", n),
		"question":      strings.Repeat("? ", n),
		"colons":        strings.Repeat(": ", n),
		"colons in key": "a" + strings.Repeat(": ", n),
		"tags":          strings.Repeat("!a ", n),
		"anchors":       strings.Repeat("&a ", n),
		"stairs":        stairs(500),
		"items":         "services:\n" + strings.Repeat("- 1\n", n/4),
		"empty items":   "services:\n" + strings.Repeat("-\n", n),
		"empty fields":  "services:\n" + strings.Repeat("- a:\n", n),
		"empty in flow": "services: [" + strings.Repeat("{a: },", n) + "]",
		"bare keys":     "services: {" + strings.Repeat("a,", n) + "}",
		"bare keys 2":   "services: [" + strings.Repeat("{a, b},", n) + "]",
		"bare keys 3":   "services: [" + strings.Repeat("{a},", n) + "]",
		"bad objects":   "services:\n" + strings.Repeat("- a: 1\n", n),
		"quotes":        strings.Repeat("'", n),
		"documents":     strings.Repeat("---\n", n),
		"comments":      "tick: [\n" + strings.Repeat("# x\n", n),
	} {
		t.Run(name, func(t *testing.T) {
			start := processorTime(t)
			_, _, err := config.Decode("x", []byte(in))
			if err == nil {
				t.Error("accepted")
			}
			if took := processorTime(t) - start; took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// processorTime is what this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func stairs(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestPlace(t *testing.T) {
	_, _, err := config.Decode("x", []byte("tick: 5\nnothing: here\n"))
	all, ok := errors.AsType[*config.Error](err)
	if !ok || len(all.Problems) != 2 {
		t.Fatalf("got %v", err)
	}
	for i, want := range []string{"1:7 tick", "2:1"} {
		if got := all.Problems[i].Place(); got != want {
			t.Errorf("place %q, want %q", got, want)
		}
	}
}

func TestManyErrorsAreCut(t *testing.T) {
	_, _, err := config.Decode("x", []byte("services:\n"+strings.Repeat("  - {name: a}\n", 500)))
	var all *config.Error
	if !errors.As(err, &all) || len(all.Problems) != 100 || all.Omitted == 0 {
		t.Fatalf("got %.300v", err)
	}
	if !strings.HasSuffix(err.Error(), "more errors") {
		t.Error("the rest is not told")
	}
}

func TestDefaultIsTheEmptyConfiguration(t *testing.T) {
	c, _, err := config.Decode("x", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Network = c.Network
	if !reflect.DeepEqual(*c, want) {
		t.Errorf("got %+v, want %+v", *c, want)
	}
}

func TestCheckCalls(t *testing.T) {
	calls := func(names ...string) []isobar.Call {
		var out []isobar.Call
		for _, n := range names {
			out = append(out, isobar.Call{Service: n, PerRequest: 1})
		}
		return out
	}
	tree := []isobar.Service{{Name: "a", Calls: calls("b", "c")}, {Name: "b", Calls: calls("c")}, {Name: "c", Calls: calls("elsewhere")}}
	if err := config.CheckCalls(tree); err != nil {
		t.Errorf("a tree: %v", err)
	}
	circle := append(slices.Clone(tree), isobar.Service{Name: "elsewhere", Calls: calls("b")})
	err := config.CheckCalls(circle)
	if !errors.Is(err, config.ErrCycle) || !errors.Is(err, isobar.ErrInvalid) || !strings.Contains(err.Error(), "b -> c -> elsewhere -> b") {
		t.Errorf("a circle: %v", err)
	}
}

// Envoys have a cluster of that name, which leads to the management server. It
// is refused wherever services come from.
func TestNoServiceIsCalledIsobar(t *testing.T) {
	const service = `{"localities": [{"locality": "a", "endpoints": ["10.0.0.1:80"]}]}`
	_, _, viaURL := config.DecodeService("isobar", []byte(service), config.Defaults{})
	_, _, viaBody := config.DecodeServices([]byte(`[{"name": "isobar", `+service[1:]+`]`), config.Defaults{})
	_, _, listed := config.Decode("isobar.yaml", []byte("discovery: {xds: {server: \"127.0.0.1:1\", services: [{name: isobar}]}}"))
	for name, err := range map[string]error{"the URL": viaURL, "a list": viaBody, "another control plane": listed} {
		if err == nil || !strings.Contains(err.Error(), "the management server's own cluster") {
			t.Errorf("named by %s: %v", name, err)
		}
	}
	if _, _, err := config.Decode("isobar.yaml", []byte("discovery: {xds: {server: \"127.0.0.1:1\", services: [{name: shop, eds_name: isobar}]}}")); err != nil {
		t.Errorf("what another control plane calls it is its own affair: %v", err)
	}
}

// What the API shows of a service's clients can be written back, and is read from
// the state directory as it was.
func TestClusterSettingsComeBack(t *testing.T) {
	const place = `{"localities": [{"locality": "a", "endpoints": ["10.0.0.1:80"]}], `
	for _, in := range []string{
		place + `"outlier_detection": "none"}`,
		place + `"protocol": "auto", "lb_policy": "least_request", "connect_timeout": "250ms", "circuit_breakers": {"max_requests": 7}, "healthy_panic_threshold": 0,
			"tls": {"sni": "a.example", "ca": "system", "cert": "/c", "key": "/k", "grpc": {"ca": "roots", "cert": "mine"}},
			"outlier_detection": {"interval": "1s", "max_ejection_percent": 0, "always_eject_one_host": true, "split_external_local_origin_errors": false, "consecutive_5xx": 7}}`,
	} {
		s, _, err := config.DecodeService("shop", []byte(in), config.Defaults{})
		if err != nil {
			t.Fatal(err)
		}
		shown, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		written, _, err := config.DecodeService("shop", shown, config.Defaults{})
		var stored isobar.Service
		if err := errors.Join(err, json.Unmarshal(shown, &stored)); err != nil {
			t.Fatalf("%v\n%s", err, shown)
		}
		if !reflect.DeepEqual(written.ClusterSettings, s.ClusterSettings) || !reflect.DeepEqual(stored.ClusterSettings, s.ClusterSettings) {
			t.Errorf("%s\nis written back as %+v,\nstored as %+v", shown, written.ClusterSettings, stored.ClusterSettings)
		}
	}
}

// A group that has lost all its disks answers clients later than a server that restarts.
func TestShortLifetimesInAGroup(t *testing.T) {
	for value, warned := range map[string]bool{"30s": true, "1m59s": true, "2m": false} {
		text := "state_dir: /s\nreplicas: {group: g, name: a, listen: \"127.0.0.1:18001\", peers: [\"a:18001\", \"b:18001\"], election: {file: /e}}\n" +
			"services: [{name: web, assignment: {endpoint_stale_after: " + value + "}, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}]\n"
		_, warnings, err := config.Decode("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		told := slices.ContainsFunc(warnings, func(p config.Problem) bool { return strings.Contains(p.String(), "\"web\" is shorter than a group") })
		if told != warned {
			t.Errorf("%s: warnings %v", value, warnings)
		}
	}
}

// Clients lose endpoints that work where an assignment expires before they can
// be connected again after a restart.
func TestShortLifetimesAreWarnedOf(t *testing.T) {
	for _, field := range []string{"endpoint_stale_after", "resource_ttl"} {
		for value, warned := range map[string]bool{"29s": true, "30s": false} {
			text := "services: [{name: a, assignment: {" + field + ": " + value + "}, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}]\n"
			_, warnings, err := config.Decode("f.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			told := slices.ContainsFunc(warnings, func(p config.Problem) bool { return strings.Contains(p.String(), "shorter than a restart") })
			if told != warned {
				t.Errorf("%s %s: warnings %v", field, value, warnings)
			}
		}
	}
}

// TestTooManyServicesAreNotRead asserts that a list with more services than a server takes is
// one error, and that no service of it is read.
func TestTooManyServicesAreNotRead(t *testing.T) {
	body := "[" + strings.Repeat("{},", isobar.MaxServices) + "{}]"
	_, _, err := config.DecodeServices([]byte(body), config.Defaults{})
	var wrong *config.Error
	if !errors.As(err, &wrong) || len(wrong.Problems) != 1 || !strings.Contains(wrong.Problems[0].Text, "10001 services are more than the 10000") {
		t.Fatalf("got %v", err)
	}
}

// TestSizeOfAnAssignment: the warning comes where clients begin to refuse what
// is really sent.
func TestSizeOfAnAssignment(t *testing.T) {
	plain := func(address string) (string, isobar.WeightedEndpoint) {
		return strconv.Quote(address), isobar.WeightedEndpoint{Address: address}
	}
	detailed := func(address string) (string, isobar.WeightedEndpoint) {
		other := strings.Replace(address, ":80", ":81", 1)
		d := isobar.EndpointDetails{
			Hostname: "checkout-123.us-east-b.internal.example", AdditionalAddresses: []string{other},
			Metadata: `{"envoy.lb":{"canary":true,"shard":17,"stage":"production","version":"2026.11.20-4711"}}`,
		}
		return fmt.Sprintf("{address: %q, hostname: %s, additional_addresses: [%q], metadata: %s}", address, d.Hostname, other, d.Metadata),
			isobar.WeightedEndpoint{Address: address, Config: &isobar.Endpoint{Details: &d}}
	}
	for _, tt := range []struct {
		endpoints int
		of        func(address string) (string, isobar.WeightedEndpoint)
		warned    bool
	}{{62_000, plain, false}, {74_000, plain, true}, {14_500, detailed, false}, {18_500, detailed, true}} {
		warnedOfSize(t, tt.endpoints, tt.of, tt.warned)
	}
}

func warnedOfSize(t *testing.T, endpoints int, of func(address string) (string, isobar.WeightedEndpoint), want bool) {
	t.Helper()
	const most = 4 << 20
	var b strings.Builder
	b.WriteString("services:\n- name: big\n  localities:\n  - locality: a/a\n    endpoints:\n")
	group := &isobar.EndpointGroup{Locality: isobar.MustLocality("a/a")}
	for i := range endpoints {
		text, e := of(fmt.Sprintf("[2001:db8:1111:2222:3333:4444:%x:%x]:8080", 0x1000+i>>12, 0x1000+i&0xfff))
		b.WriteString("    - " + text + "\n")
		e.Weight, e.Health = 1000, isobar.Healthy
		group.Endpoints = append(group.Endpoints, e)
	}
	_, warnings, err := config.Decode("f", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	says := fmt.Sprintf("f:4:3: warning: services[0].localities: %d endpoints take about 4.", endpoints)
	if warned := slices.ContainsFunc(warnings, func(p config.Problem) bool { return strings.HasPrefix(p.String(), says) }); warned != want {
		t.Errorf("%d endpoints: warnings %v", endpoints, warnings)
	}
	sent, err := resource.Assignment(&isobar.Assignment{
		Service: "big", OverprovisioningFactor: 140,
		Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: group, Weight: isobar.WeightScale}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if size := proto.Size(sent); (size > most) != want {
		t.Errorf("%d endpoints take %d bytes, warned is %v", endpoints, size, want)
	}
}
