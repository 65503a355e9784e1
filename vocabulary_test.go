package isobar_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/isobar-xds/isobar"
)

func TestHealthNames(t *testing.T) {
	for h := isobar.Unknown; h <= isobar.Degraded; h++ {
		got, err := isobar.ParseHealth(h.String())
		if err != nil || got != h {
			t.Errorf("%s: %v, %v", h, got, err)
		}
		if usable := h == isobar.Unknown || h == isobar.Healthy; h.Usable() != usable {
			t.Errorf("%s: usable %v", h, h.Usable())
		}
	}
	if h, err := isobar.ParseHealth("HEALTHY"); err != nil || h != isobar.Healthy {
		t.Errorf("case: %v, %v", h, err)
	}
	if _, err := isobar.ParseHealth("fine"); !errors.Is(err, isobar.ErrBadHealth) {
		t.Errorf("fine: %v", err)
	}
	if s := isobar.HealthStatus(99).String(); s != "health(99)" {
		t.Error(s)
	}
}

func TestModeNames(t *testing.T) {
	for m := isobar.ModeFull; m <= isobar.ModeObserve; m++ {
		got, err := isobar.ParseMode(m.String())
		if err != nil || got != m {
			t.Errorf("%s: %v, %v", m, got, err)
		}
	}
	if _, err := isobar.ParseMode("Full"); !errors.Is(err, isobar.ErrBadMode) {
		t.Errorf("Full: %v", err)
	}
	if s := isobar.Mode(9).String(); s != "mode(9)" {
		t.Error(s)
	}
}

func TestServiceSurvivesJSON(t *testing.T) {
	in := isobar.Service{
		Name: "checkout", Mode: isobar.ModeBounded, MaxShift: 5,
		Localities: []isobar.ServiceLocality{{
			Locality:  isobar.MustLocality("us-east/b"),
			MaxRate:   100,
			Endpoints: []isobar.Endpoint{{Address: "10.0.0.1:80", Health: isobar.Draining}, {Address: "10.0.0.2:80", Weight: 2}},
		}},
	}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out isobar.Service
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("%+v became %+v by %s", in, out, b)
	}
}

func TestAssignment(t *testing.T) {
	group := func(l string, h ...isobar.HealthStatus) *isobar.EndpointGroup {
		g := &isobar.EndpointGroup{Locality: isobar.MustLocality(l)}
		for i := range h {
			g.Endpoints = append(g.Endpoints, isobar.WeightedEndpoint{Address: l + string(rune('0'+i)), Weight: 1, Health: h[i]})
		}
		return g
	}
	b, a := group("b", isobar.Healthy, isobar.Degraded, isobar.Unknown), group("a", isobar.Timeout)
	as := &isobar.Assignment{Service: "svc", Priorities: [][]isobar.LocalityWeight{
		{{EndpointGroup: b, Weight: 2500}, {EndpointGroup: group("c"), Weight: 7500}},
		{{EndpointGroup: a, Weight: 1}},
	}, OverprovisioningFactor: 140}
	if b.Usable() != 2 || a.Usable() != 0 {
		t.Errorf("usable: %d and %d", b.Usable(), a.Usable())
	}
	var none *isobar.Assignment
	for l, want := range map[string]float64{"b": 0.25, "c": 0.75, "a": 0, "x": 0} {
		if got := as.Share(isobar.MustLocality(l)); got != want {
			t.Errorf("share of %s: %v, want %v", l, got, want)
		}
		if none.Share(isobar.MustLocality(l)) != 0 {
			t.Error("no assignment has a share")
		}
	}
	j, err := json.Marshal(as)
	if err != nil {
		t.Fatal(err)
	}
	var back isobar.Assignment
	if err := json.Unmarshal(j, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(as, &back) {
		t.Errorf("%s", j)
	}
}

func TestTopology(t *testing.T) {
	at := func(names ...string) (out []isobar.ServiceLocality) {
		for _, n := range names {
			out = append(out, isobar.ServiceLocality{Locality: isobar.MustLocality(n)})
		}
		return out
	}
	top := isobar.Topology{Services: []isobar.Service{{Name: "b", Localities: at("z", "a/2", "a/1")}, {Name: "a"}}}
	top.Normalize()
	want := isobar.Topology{Services: []isobar.Service{{Name: "a"}, {Name: "b", Localities: at("a/1", "a/2", "z")}}}
	if !reflect.DeepEqual(top, want) {
		t.Errorf("%+v", top)
	}
	if s, ok := top.Service("b"); !ok || s.Name != "b" {
		t.Error("b not found")
	}
	if _, ok := top.Service("c"); ok {
		t.Error("c found")
	}
}

func TestEndpointByAddress(t *testing.T) {
	s := isobar.Service{Localities: []isobar.ServiceLocality{
		{Locality: isobar.MustLocality("a/1"), Endpoints: []isobar.Endpoint{{Address: "10.0.0.1:80"}, {Address: "[::1]:80"}}},
		{Locality: isobar.MustLocality("a/2"), Endpoints: []isobar.Endpoint{{Address: "10.0.0.2:80", Weight: 7}}},
	}}
	for _, tt := range []struct{ given, address, locality string }{
		{"10.0.0.2:80", "10.0.0.2:80", "a/2"},
		{"[0:0::1]:80", "[::1]:80", "a/1"},
		{"[::ffff:10.0.0.1]:80", "10.0.0.1:80", "a/1"},
	} {
		l, e, ok := s.Endpoint(tt.given)
		if !ok || e.Address != tt.address || l.String() != tt.locality {
			t.Errorf("%s: %v in %s, %v", tt.given, e, l, ok)
		}
	}
	for _, none := range []string{"10.0.0.3:80", "10.0.0.1", "backend:80", ""} {
		if _, e, ok := s.Endpoint(none); ok || e != nil {
			t.Errorf("%q is %v", none, e)
		}
	}
}
