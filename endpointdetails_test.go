package isobar_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
)

func metadata(t *testing.T, text string) isobar.Metadata {
	t.Helper()
	m, err := isobar.ParseMetadata([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMetadataAreCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:   ``,
		`null`: ``,
		"\n{ \"envoy.lb\" : { \"version\":\"canary\",\"a\":1.50 } }": `{"envoy.lb":{"a":1.5,"version":"canary"}}`,
		`{"b":{},"a":{"x":[1e3,true,null,{"k":"<&>"}]}}`:             `{"a":{"x":[1000,true,null,{"k":"<&>"}]},"b":{}}`,
	} {
		m := metadata(t, in)
		if string(m) != want {
			t.Errorf("%s became %s, want %s", in, m, want)
		}
		if again := metadata(t, orNull(want)); again != m {
			t.Errorf("%s became %s when read again", m, again)
		}
	}
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return s
}

func TestBadMetadata(t *testing.T) {
	for in, want := range map[string]string{
		``:                                   "unexpected end",
		`[]`:                                 "want an object of objects",
		`{"envoy.lb": "canary"}`:             "want an object of objects",
		`{"envoy.lb": null}`:                 `filter "envoy.lb" has no value`,
		`{"": {}}`:                           "a filter without a name",
		`{"a": {}} {}`:                       "after top-level value",
		"{\"a\": {\"\xff\": 1}}":             "not UTF-8",
		`{"a": {"b": 1e999}}`:                "cannot unmarshal",
		`{"a": ` + nested(17) + `}`:          "nested deeper than 16 levels",
		`{"a": {"b": "` + text(4090) + `"}}`: "4104 bytes, want at most 4096",
	} {
		m, err := isobar.ParseMetadata([]byte(in))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %q, %v; want %q", in, m, err, want)
		}
	}
	metadata(t, `{"a": `+nested(16)+`}`)
}

func nested(levels int) string {
	return strings.Repeat(`{"x":`, levels) + "0" + strings.Repeat("}", levels)
}

func text(n int) string { return strings.Repeat("y", n) }

// What an endpoint has survives being written down, among its other fields.
func TestEndpointJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawEndpoint(t)
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out isobar.Endpoint
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if !reflect.DeepEqual(in, out) {
			t.Fatalf("%+v became %+v by %s", in, out, b)
		}
		a, o := isobar.WeightedEndpoint{Config: &in}, isobar.WeightedEndpoint{Config: &out}
		if !a.Equal(&o) {
			t.Fatalf("%s is not equal to itself", b)
		}
		if other := drawEndpoint(t); !reflect.DeepEqual(in.Details, other.Details) || !reflect.DeepEqual(in.Check, other.Check) {
			if o.Config = &other; a.Equal(&o) {
				t.Fatalf("%+v equals %+v", a.Config, o.Config)
			}
		}
	})
}

func drawEndpoint(t *rapid.T) isobar.Endpoint {
	e := isobar.Endpoint{Address: "10.0.0.1:80", Weight: uint32(rapid.IntRange(0, 3).Draw(t, "weight"))}
	d := isobar.EndpointDetails{
		Hostname:            rapid.SampledFrom([]string{"", "a.example"}).Draw(t, "hostname"),
		AdditionalAddresses: rapid.SampledFrom([][]string{nil, {"10.0.0.2:80"}, {"10.0.0.2:80", "10.0.0.3:80"}}).Draw(t, "additional"),
		Metadata:            rapid.SampledFrom([]isobar.Metadata{"", `{"a":{}}`, `{"envoy.lb":{"stage":"<"}}`}).Draw(t, "metadata"),
	}
	if !reflect.DeepEqual(d, isobar.EndpointDetails{}) {
		e.Details = &d
	}
	e.Check = rapid.SampledFrom([]*isobar.EndpointCheck{nil, {Port: 81}, {Disabled: true}}).Draw(t, "check")
	return e
}

func TestEndpointJSON(t *testing.T) {
	in := isobar.Endpoint{
		Address: "10.0.0.1:80", Weight: 2, Check: &isobar.EndpointCheck{Port: 81},
		Details: &isobar.EndpointDetails{Hostname: "a.example", AdditionalAddresses: []string{"[::1]:80"}, Metadata: metadata(t, `{"envoy.lb": {"version": 1}}`)},
	}
	const want = `{"address":"10.0.0.1:80","weight":2,"health_check_config":{"port":81},` +
		`"hostname":"a.example","additional_addresses":["[::1]:80"],"metadata":{"envoy.lb":{"version":1}}}`
	if b, err := json.Marshal(in); err != nil || string(b) != want {
		t.Errorf("got %s, %v\nwant %s", b, err, want)
	}
	for _, bad := range []string{`{"hostname": 1}`, `{"metadata": {"a": 1}}`, `[]`} {
		var e isobar.Endpoint
		if err := json.Unmarshal([]byte(bad), &e); err == nil {
			t.Errorf("%s: read as %+v", bad, e)
		}
	}
	var plain isobar.Endpoint
	if err := json.Unmarshal([]byte(`{"address": "10.0.0.1:80", "hostname": "", "metadata": null}`), &plain); err != nil || plain.Details != nil {
		t.Errorf("empty details: %+v, %v", plain.Details, err)
	}
}

// There are many endpoints, and few of them have details.
func TestDetailsCostOthersAPointer(t *testing.T) {
	plain := unsafe.Sizeof("address") + unsafe.Sizeof(uint32(1)) + unsafe.Sizeof(isobar.Unknown)
	const word = unsafe.Sizeof(uintptr(0))
	plain = (plain + word - 1) / word * word
	if got := unsafe.Sizeof(isobar.WeightedEndpoint{}); got > plain+word {
		t.Errorf("an endpoint takes %d bytes, want at most %d", got, plain+word)
	}
}

func TestEqualGroups(t *testing.T) {
	build := func(change func(*isobar.EndpointGroup)) *isobar.EndpointGroup {
		e := isobar.Endpoint{Check: &isobar.EndpointCheck{Port: 81}, Details: &isobar.EndpointDetails{Hostname: "h", AdditionalAddresses: []string{"10.0.0.2:80"}}}
		g := &isobar.EndpointGroup{
			Locality:  isobar.MustLocality("a/b"),
			Endpoints: []isobar.WeightedEndpoint{{Address: "10.0.0.1:80", Weight: 1, Config: &e}, {Address: "10.0.0.3:80", Weight: 1}},
		}
		change(g)
		return g
	}
	same := build(func(*isobar.EndpointGroup) {})
	for name, change := range map[string]func(*isobar.EndpointGroup){
		"locality":  func(g *isobar.EndpointGroup) { g.Locality.Zone = "c" },
		"metadata":  func(g *isobar.EndpointGroup) { g.Metadata = `{"a":{}}` },
		"fewer":     func(g *isobar.EndpointGroup) { g.Endpoints = g.Endpoints[:1] },
		"address":   func(g *isobar.EndpointGroup) { g.Endpoints[1].Address = "10.0.0.4:80" },
		"weight":    func(g *isobar.EndpointGroup) { g.Endpoints[1].Weight++ },
		"health":    func(g *isobar.EndpointGroup) { g.Endpoints[1].Health = isobar.Draining },
		"details":   func(g *isobar.EndpointGroup) { g.Endpoints[0].Config = nil },
		"check":     func(g *isobar.EndpointGroup) { g.Endpoints[0].Config.Check.Disabled = true },
		"no check":  func(g *isobar.EndpointGroup) { g.Endpoints[0].Config.Check = nil },
		"hostname":  func(g *isobar.EndpointGroup) { g.Endpoints[0].Config.Details.Hostname = "" },
		"addresses": func(g *isobar.EndpointGroup) { g.Endpoints[0].Config.Details.AdditionalAddresses[0] = "10.0.0.9:80" },
		"one more":  func(g *isobar.EndpointGroup) { g.Endpoints[1].Config = g.Endpoints[0].Config },
	} {
		if other := build(change); same.Equal(other) || other.Equal(same) {
			t.Errorf("%s: still equal", name)
		}
	}
	if !same.Equal(build(func(g *isobar.EndpointGroup) { g.Endpoints[0].Config.Weight = 7 })) {
		t.Error("what clients don't get makes a difference")
	}
}
