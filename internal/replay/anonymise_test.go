package replay_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/internal/replay"
)

// A trace under pseudonyms is decided again as it was, each share of each plan,
// and holds no name of the original.
func TestAnonymise(t *testing.T) {
	data := recorded(t, 3)
	var out bytes.Buffer
	if err := replay.Anonymise(&out, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	var original, anonymous []*replay.Step
	for _, x := range []struct {
		data []byte
		to   *[]*replay.Step
	}{{data, &original}, {out.Bytes(), &anonymous}} {
		if err := play(x.data, replay.ReaderOptions{}, func(s *replay.Step) error {
			if s.Difference != "" {
				t.Fatal(s.Difference)
			}
			*x.to = append(*x.to, s)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(original) != len(anonymous) || len(original) < 10 {
		t.Fatalf("%d decisions, were %d", len(anonymous), len(original))
	}
	names := map[string]bool{}
	for i, s := range original {
		for k, service := range s.Plan.Services {
			names[service.Spec.Name] = true
			for l := range service.Spec.Localities {
				names[service.Spec.Localities[l].Locality.Region+"/"+service.Spec.Localities[l].Locality.Zone] = true
				for _, e := range service.Spec.Localities[l].Endpoints {
					names[e.Address] = true
				}
			}
			for j := range service.Result.Sources {
				if !slices.Equal(service.Result.Sources[j].Shares, anonymous[i].Plan.Services[k].Result.Sources[j].Shares) {
					t.Errorf("plan %d: other shares", s.Plan.Version)
				}
			}
		}
	}
	text := replay.Texts(t, out.Bytes())
	for name := range names {
		if strings.Contains(text, name) {
			t.Errorf("%q is still there", name)
		}
	}
	if again := replay.Texts(t, data); !strings.Contains(again, original[0].Plan.Services[0].Spec.Name) {
		t.Error("the test does not see names where they are")
	}
	var twice bytes.Buffer
	if err := replay.Anonymise(&twice, bytes.NewReader(data)); err != nil || !bytes.Equal(twice.Bytes(), out.Bytes()) {
		t.Errorf("another trace at the second time: %v", err)
	}
}

// A trace that is cut is copied as far as it is whole, and a damaged one is
// refused.
func TestAnonymiseDamaged(t *testing.T) {
	data := recorded(t, 2)
	var out bytes.Buffer
	if err := replay.Anonymise(&out, bytes.NewReader(data[:len(data)*3/4])); err != nil {
		t.Error(err)
	}
	plans := 0
	if err := play(out.Bytes(), replay.ReaderOptions{}, func(*replay.Step) error { plans++; return nil }); err != nil && !errors.Is(err, replay.ErrCut) || plans < 5 {
		t.Errorf("%d plans, %v", plans, err)
	}
	data[len(data)/2] ^= 1
	if err := replay.Anonymise(&out, bytes.NewReader(data)); !errors.Is(err, replay.ErrDamaged) {
		t.Error(err)
	}
}

// Pseudonyms keep the order of names, also among Isobar's own words, and which
// name begins which.
func TestPseudonyms(t *testing.T) {
	text := rapid.StringMatching(`(named_metrics\.)?[a-e.:/~ 0-9_]{1,6}|rate[a-z]?|tick[a-z]?|cpu_utilization[a-z]?|isobar_[a-z]{0,3}|zz`)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfDistinct(text, func(s string) string { return s }).Draw(t, "names")
		given, err := replay.Pseudonyms(names)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range names {
			for _, b := range append(replay.Words(), names...) {
				if slices.Contains(replay.Words(), a) {
					continue
				}
				other, known := given[b]
				if slices.Contains(replay.Words(), b) {
					other, known = b, true
				}
				if !known || strings.Compare(a, b) != strings.Compare(given[a], other) {
					t.Fatalf("%q and %q are called %q and %q", a, b, given[a], other)
				}
			}
		}
	})
}
