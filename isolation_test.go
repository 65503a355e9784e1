package isobar_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/isobar-xds/isobar"
)

func TestLocalityGlob(t *testing.T) {
	for _, test := range []struct {
		glob, locality string
		want           bool
	}{
		{"eu-*", "eu-west/a", true},
		{"eu-*", "us-east/a", false},
		{"eu-*", "", false},
		{"*", "", true},
		{"*", "us-east", true},
		{"us-east/b", "us-east/b/rack1", true},
		{"us-east/b", "us-east", false},
		{"*/b", "us-east/b", true},
		{"*/b/r*", "us-east/b/s", false},
		{"e*-*t", "eu-west", true},
		{"e*-*t", "eu-t", true},
		{"eu-*-t", "eu-t", false},
		{"*a*b*", "xaybz", true},
		{"*a*b*", "xbya", false},
		{"a%2F*", "a%2Fb/z", true},
	} {
		g, err := isobar.ParseLocalityGlob(test.glob)
		if err != nil {
			t.Fatal(err)
		}
		l, err := isobar.ParseLocality(test.locality)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Matches(l); got != test.want {
			t.Errorf("%s matches %q: %v", test.glob, test.locality, got)
		}
	}
	for _, bad := range []string{"", "a/", "a/b/c/d", "eu-[ab]", "eu-?", `eu\*`} {
		if _, err := isobar.ParseLocalityGlob(bad); !errors.Is(err, isobar.ErrBadGlob) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestServiceAllows(t *testing.T) {
	var s isobar.Service
	const body = `{"name":"a","mode":"full","isolation":"strict","residency":[{"from":"eu-*","allow":["eu-west","eu-north/a"]}],"localities":null}`
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(s); err != nil || string(b) != body {
		t.Errorf("%s, %v", b, err)
	}
	for _, test := range []struct {
		from, to string
		want     bool
	}{
		{"us-east/a", "us-east/b", true},
		{"us-east/a", "us-west/b", false},
		{"", "us-west/b", true},
		{"eu-west/a", "eu-west/b", true},
		{"eu-south/a", "eu-south/a", false},
		{"eu-north/b", "eu-north/a", true},
	} {
		from, _ := isobar.ParseLocality(test.from)
		if got := s.Allows(from, isobar.MustLocality(test.to)); got != test.want {
			t.Errorf("from %q to %s: %v", test.from, test.to, got)
		}
	}
	if err := json.Unmarshal([]byte(`{"isolation":"some"}`), &s); !errors.Is(err, isobar.ErrBadIsolation) {
		t.Errorf("error %v", err)
	}
}
