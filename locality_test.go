package isobar_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
)

func TestParseLocality(t *testing.T) {
	for text, want := range map[string]isobar.Locality{
		"":            {},
		"us-east":     {Region: "us-east"},
		"us-east/b":   {Region: "us-east", Zone: "b"},
		"us-east/b/7": {Region: "us-east", Zone: "b", SubZone: "7"},
		"a%2Fb/c%25d": {Region: "a/b", Zone: "c%d"},
		"100%/x":      {Region: "100%", Zone: "x"},
	} {
		got, err := isobar.ParseLocality(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"/", "/b", "us-east/", "a//c", "a/b/c/d", " a", "a/b ", strings.Repeat("x", 254)} {
		if _, err := isobar.ParseLocality(text); !errors.Is(err, isobar.ErrBadLocality) {
			t.Errorf("%q: %v, want ErrBadLocality", text, err)
		}
	}
}

// Every locality that a client may send survives being written down.
func TestLocalityTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringMatching(`[a-c/% ]{0,4}`)
		in := isobar.Locality{Region: part.Draw(t, "region"), Zone: part.Draw(t, "zone"), SubZone: part.Draw(t, "sub_zone")}
		b, err := json.Marshal(map[isobar.Locality]isobar.Locality{in: in})
		if err != nil {
			t.Fatal(err)
		}
		var out map[isobar.Locality]isobar.Locality
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatal(err)
		}
		if len(out) != 1 || out[in] != in {
			t.Fatalf("%+v became %+v by %s", in, out, b)
		}
		if parsed, err := isobar.ParseLocality(in.String()); err == nil && parsed != in {
			t.Fatalf("%+v parsed as %+v", in, parsed)
		}
	})
}

func FuzzLocality(f *testing.F) {
	for _, s := range []string{"", "us-east/b/7", "a//b", "%2F/%25", "a/b/c/d", strings.Repeat("%", 200)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if l, err := isobar.ParseLocality(s); err == nil {
			if again, err := isobar.ParseLocality(l.String()); err != nil || again != l {
				t.Errorf("%q: %+v, then %+v, %v", s, l, again, err)
			}
		}
		var l, again isobar.Locality
		if l.UnmarshalText([]byte(s)) == nil {
			if err := again.UnmarshalText([]byte(l.String())); err != nil || again != l {
				t.Errorf("%q: %+v, then %+v, %v", s, l, again, err)
			}
		}
	})
}

func TestCompareSortsByParts(t *testing.T) {
	sorted := []isobar.Locality{{}, {Zone: "z"}, {Region: "a"}, {Region: "a", SubZone: "s"}, {Region: "a", Zone: "b"}, {Region: "b"}}
	for i, a := range sorted {
		for j, b := range sorted {
			if got := a.Compare(b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q against %q: %d", a, b, got)
			}
		}
	}
}
