//go:build !race

package archive_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/plan"
)

// differs reports what differs between what a span tells of a service and what stood before
// and after it.
func (f fleet) differs(after fleet, name string, n archive.Net) error {
	moves := map[[2]isobar.Locality]archive.NetMove{}
	for i := range n.Services {
		for _, m := range n.Services[i].Moves {
			if n.Services[i].Service == name {
				moves[[2]isobar.Locality{m.Source, m.Locality}] = m
			}
		}
	}
	for _, source := range sites {
		for k, site := range sites {
			x, was := f[name][source]
			y, is := after[name][source]
			m, told := moves[[2]isobar.Locality{source, site}]
			if !told {
				if x[k] != y[k] {
					return fmt.Errorf("from %s to %s: nothing is told, want %d to %d", source, site, x[k], y[k])
				}
				continue
			}
			for _, side := range []struct {
				got  *float64
				want uint16
				is   bool
			}{{m.Before, x[k], was}, {m.After, y[k], is}} {
				if (side.got != nil) != side.is || side.is && math.Abs(*side.got-float64(side.want)/isobar.WeightScale) > 1e-9 {
					return fmt.Errorf("from %s to %s: %+v, want %v %v to %v %v", source, site, m, x[k], was, y[k], is)
				}
				if side.is && (*side.got < m.Low || *side.got > m.High) {
					return fmt.Errorf("from %s to %s: %+v", source, site, m)
				}
			}
			if m.Changes == 0 {
				return fmt.Errorf("from %s to %s: no change", source, site)
			}
		}
	}
	return nil
}

// TestNetIsWhatDiffers: whatever was decided, lost by a crash and decided again, the shares
// before and after each span are those that stood, of each service alone and of all.
func TestNetIsWhatDiffers(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 2))
		a := open(t, "", archive.Options{})
		names := []string{"cart", "checkout", "search"}
		versions, stood := []uint64{0}, map[uint64]fleet{0: {}}
		now, saved, savedAt, version := fleet{}, fleet{}, uint64(0), uint64(0)
		step := func(before fleet, previous uint64, trigger string) {
			now.mutate(random, names)
			add(t, a, change(before, now, version, previous, trigger))
			versions, stood[version] = append(versions, version), now.clone()
		}
		for range 50 {
			before, previous := now.clone(), version
			version++
			step(before, previous, plan.TriggerTick)
			if random.IntN(3) == 0 {
				saved, savedAt = now.clone(), version
			}
			if random.IntN(10) == 0 { // a crash: it goes on from what was saved
				version += 100
				now = saved.clone()
				step(saved, savedAt, plan.TriggerRestart)
			}
		}
		for range 40 {
			i := random.IntN(len(versions) - 1)
			k := i + 1 + random.IntN(len(versions)-1-i)
			from, to := t0.Add(time.Duration(versions[i])*time.Second+1), t0.Add(time.Duration(versions[k])*time.Second+1)
			for _, name := range names {
				for _, asked := range []string{"", name} {
					got, err := a.Net(asked, from, to)
					marks, _ := a.Marks(asked)
					if want := len(archive.Between(marks, from, to)); err == nil && (got.Count != want || got.Counted != want) {
						err = fmt.Errorf("%d changes, %d counted, want %d", got.Count, got.Counted, want)
					}
					if err == nil {
						err = stood[versions[i]].differs(stood[versions[k]], name, got)
					}
					if err != nil {
						t.Fatalf("seed %d, %s asked as %q from %d to %d: %v", seed, name, asked, versions[i], versions[k], err)
					}
				}
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// oscillation is a list of changes of one service, 5 s apart, that set the share of the
// second locality.
func oscillation(shares ...uint16) []plan.Change {
	var out []plan.Change
	for i, share := range shares[1:] {
		was := shares[i]
		out = append(out, plan.Change{
			Version: uint64(i + 1), Previous: uint64(i), Made: t0.Add(time.Duration(i) * 5 * time.Second), Trigger: plan.TriggerTick,
			Services: []plan.ServiceChange{{Service: "cart", Reason: fmt.Sprintf("to %d", share), Sites: sites, Sources: []plan.SourceChange{{
				Source: sites[0], Before: []uint16{10_000 - was, was, 0}, After: []uint16{10_000 - share, share, 0},
			}}}},
		})
	}
	return out
}

// TestNetBackAndForth: a share that went back to what it was has the same before and after,
// with the least and the most between, and the reasons of the largest changes.
func TestNetBackAndForth(t *testing.T) {
	changes := oscillation(2000, 1200, 3100, 2500, 2000)
	changes[2].Trigger = plan.TriggerHealth
	got := archive.NetOf(changes, t0, t0.Add(time.Minute))
	if len(got.Services) != 1 || got.Counted != 4 || len(got.Services[0].Moves) != 2 || !got.Since.Equal(t0) {
		t.Fatalf("%+v", got)
	}
	s := got.Services[0]
	if m := s.Moves[1]; m.Locality != sites[1] || *m.Before != 0.2 || *m.After != 0.2 || m.Low != 0.12 || m.High != 0.31 || m.Changes != 4 {
		t.Errorf("%+v", m)
	}
	var reasons []string
	for _, r := range s.Reasons {
		reasons = append(reasons, r.Trigger+" "+r.Text)
	}
	if want := []string{"health to 2500", "tick to 3100", "tick to 1200"}; !slices.Equal(reasons, want) {
		t.Errorf("%v, want %v", reasons, want)
	}
	for i, text := range []string{"", "10.0% of the requests moved toward us/b", "demand from us/a rose from 57 to 77 requests/s; us/b: would get less than 0.5% of the requests, for 1 of 3 decisions so far; then it gets none"} {
		changes[i].Services[0].Reason = text
	}
	reasons = nil
	for _, r := range archive.NetOf(changes, t0, t0.Add(time.Minute)).Services[0].Reasons {
		reasons = append(reasons, r.Text)
	}
	if want := []string{"demand from us/a rose from 57 to 77 requests/s", "to 2000", plan.NoCause}; !slices.Equal(reasons, want) {
		t.Errorf("%q, want the causes alone: %q", reasons, want)
	}
	// A part of it: what stood before it counts.
	got = archive.NetOf(changes, t0.Add(5*time.Second), t0.Add(15*time.Second))
	if m := got.Services[0].Moves[1]; *m.Before != 0.12 || *m.After != 0.25 || m.Low != 0.12 || m.High != 0.31 || m.Changes != 2 {
		t.Errorf("%+v", m)
	}
	if got = archive.NetOf(changes, t0.Add(time.Hour), t0.Add(2*time.Hour)); got.Count != 0 || got.Services == nil || len(got.Services) != 0 {
		t.Errorf("a span without changes: %+v", got)
	}
}

// TestNetIsBounded: of more changes than are read, the newest are counted, and it is told
// since when.
func TestNetIsBounded(t *testing.T) {
	shares := []uint16{5000}
	for i := range 1500 {
		shares = append(shares, uint16(5000+i%2))
	}
	got := archive.NetOf(oscillation(shares...), t0, t0.Add(24*time.Hour))
	if got.Count != 1500 || got.Counted != 1000 || !got.Since.Equal(t0.Add(500*5*time.Second)) || got.Services[0].Changes != 1000 {
		t.Errorf("%d %d %v", got.Count, got.Counted, got.Since)
	}
}

// TestNetOfSourcesThatComeAndGo: a source that was not there has nothing before, and one
// that is gone nothing after.
func TestNetOfSourcesThatComeAndGo(t *testing.T) {
	part := func(before, after []uint16, drop float64) plan.Change {
		return plan.Change{Made: t0, Services: []plan.ServiceChange{{
			Service: "cart", After: drop, Sites: sites[:2], Sources: []plan.SourceChange{{Source: sites[0], Before: before, After: after}},
		}}}
	}
	came, moved, gone := part(nil, []uint16{4000, 6000}, 0.1), part([]uint16{4000, 6000}, []uint16{5000, 5000}, 0.2), part([]uint16{5000, 5000}, nil, 0)
	for name, tt := range map[string]struct {
		changes       []plan.Change
		before, after float64 // -1: none
		low, high     float64
	}{
		"it came":          {[]plan.Change{came, moved}, -1, 0.5, 0.4, 0.5},
		"it is gone":       {[]plan.Change{moved, gone}, 0.4, -1, 0.4, 0.5},
		"it came and went": {[]plan.Change{came, moved, gone}, -1, -1, 0.4, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			got := archive.NetOf(tt.changes, t0, t0.Add(1))
			m := got.Services[0].Moves[0]
			if value(m.Before) != tt.before || value(m.After) != tt.after || m.Low != tt.low || m.High != tt.high {
				t.Errorf("%v %v %+v", value(m.Before), value(m.After), m)
			}
		})
	}
}

func value(x *float64) float64 {
	if x == nil {
		return -1
	}
	return *x
}
