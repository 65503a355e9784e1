package archive_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	t0    = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	sites = []isobar.Locality{isobar.MustLocality("eu/a"), isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
)

// fleet is a dumb twin: the shares of each source of each service, in 1/10,000, by site.
type fleet map[string]map[isobar.Locality][3]uint16

func (f fleet) clone() fleet {
	out := fleet{}
	for name, sources := range f {
		out[name] = maps.Clone(sources)
	}
	return out
}

// change tells what differs between two fleets.
func change(before, after fleet, version, previous uint64, trigger string) plan.Change {
	c := plan.Change{Version: version, Previous: previous, Made: t0.Add(time.Duration(version) * time.Second), Trigger: trigger, Services: []plan.ServiceChange{}}
	names := map[string]bool{}
	for _, f := range []fleet{before, after} {
		for name := range f {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s := plan.ServiceChange{Service: name, Reason: "why " + name, Sites: sites}
		for _, source := range sites {
			x, was := before[name][source]
			y, is := after[name][source]
			if was == is && x == y {
				continue
			}
			d := plan.SourceChange{Source: source}
			if was {
				d.Before = slices.Clone(x[:])
			}
			if is {
				d.After = slices.Clone(y[:])
			}
			s.Sources = append(s.Sources, d)
		}
		if len(s.Sources) > 0 {
			c.Services = append(c.Services, s)
		}
	}
	return c
}

// saved is a service of the fleet as a plan has it.
func (f fleet) saved(name string) *plan.SavedService {
	out := &plan.SavedService{Name: name, Sites: sites}
	for _, source := range sites {
		units, ok := f[name][source]
		if !ok {
			continue
		}
		s := plan.SavedSource{Source: source}
		for _, n := range units {
			s.Shares = append(s.Shares, float64(n)/isobar.WeightScale)
		}
		out.Sources = append(out.Sources, s)
	}
	return out
}

func (f fleet) same(name string, s *archive.Shares) error {
	if len(s.Sources) != len(f[name]) {
		return fmt.Errorf("%d sources, want %d", len(s.Sources), len(f[name]))
	}
	for i := range s.Sources {
		for k, l := range s.Localities {
			want := float64(f[name][s.Sources[i].Source][slices.Index(sites, l)]) / isobar.WeightScale
			if got := s.Sources[i].Shares[k]; math.Abs(got-want) > 1e-9 {
				return fmt.Errorf("from %s to %s: %v, want %v", s.Sources[i].Source, l, got, want)
			}
		}
	}
	return nil
}

func (f fleet) mutate(random *rand.Rand, names []string) {
	for range 1 + random.IntN(4) {
		name, source := names[random.IntN(len(names))], sites[random.IntN(len(sites))]
		if random.IntN(12) == 0 {
			delete(f[name], source)
			continue
		}
		a := uint16(random.IntN(10_001))
		if f[name] == nil {
			f[name] = map[isobar.Locality][3]uint16{}
		}
		f[name][source] = [3]uint16{a, 10_000 - a, 0}
	}
}

func open(t *testing.T, dir string, o archive.Options) *archive.Archive {
	t.Helper()
	a, err := archive.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func add(t *testing.T, a *archive.Archive, c plan.Change) {
	t.Helper()
	if err := a.Append(&c); err != nil {
		t.Fatal(err)
	}
}

// wide is a change of n services at a time.
func wide(version uint64, at time.Time, n int) plan.Change {
	c := plan.Change{Version: version, Previous: version - 1, Made: at, Trigger: plan.TriggerTick}
	for i := range n {
		c.Services = append(c.Services, plan.ServiceChange{
			Service: fmt.Sprintf("s%05d", i), Reason: "why", Sites: sites,
			Sources: []plan.SourceChange{{Source: sites[0], Before: []uint16{10_000, 0, 0}, After: []uint16{5000, 5000, uint16(version % 7)}}},
		})
	}
	return c
}

// TestMarksOfAService: they are those of all changes that name it, however often they are
// asked for, and a change that is gone leaves them.
func TestMarksOfAService(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		a := open(t, dir, archive.Options{MaxChanges: 30, MaxAge: time.Hour})
		for v := uint64(1); v <= 120; v++ {
			n := 1 + int(v%3)*100
			add(t, a, wide(v, t0.Add(time.Duration(v)*time.Minute), n))
			if v == 50 {
				c := plan.Change{Version: 1000, Previous: 50, Made: t0.Add(50 * time.Minute), Trigger: plan.TriggerOperator, About: "other"}
				if err := a.Append(&c); err != nil {
					t.Fatal(err)
				}
				break
			}
			if v%10 != 0 {
				continue
			}
			all, err := a.Marks("")
			if err != nil {
				t.Fatal(err)
			}
			for service, count := range map[string]int{"s00000": 0, "s00150": 2, "s99999": -1} {
				want := 0
				for i := range all {
					if count == 0 || count == 2 && all[i].Services > 150 {
						want++
					}
				}
				got, err := a.Marks(service)
				if err != nil || len(got) != want {
					t.Fatalf("%s after %d: %d marks, want %d: %v", service, v, len(got), want, err)
				}
				if want > 0 && (got[0].Most != service || got[0].Services != 1 || got[0].Moved < 0.4) {
					t.Fatalf("%+v", got[0])
				}
			}
		}
		if got, err := a.Marks("other"); err != nil || len(got) != 1 || got[0].Version != 1000 {
			t.Errorf("an operator's order about a service: %+v %v", got, err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChange: a change comes back whole, or as far as it is about a service.
func TestChange(t *testing.T) {
	a := open(t, t.TempDir(), archive.Options{})
	defer func() { _ = a.Close() }()
	for v := uint64(1); v < 6; v++ {
		add(t, a, wide(2*v, t0, 200))
	}
	c, err := a.Change(6, "")
	want := wide(6, t0, 200)
	if err != nil || len(c.Services) != 200 || c.Version != 6 || c.Previous != 5 || !c.Made.Equal(t0) ||
		!slices.Equal(c.Services[199].Sources[0].After, want.Services[199].Sources[0].After) {
		t.Fatalf("%+v %v", c.Version, err)
	}
	if c, err = a.Change(6, "s00077"); err != nil || len(c.Services) != 1 || c.Services[0].Service != "s00077" {
		t.Errorf("%+v %v", c.Services, err)
	}
	if _, err = a.Change(7, ""); !errors.Is(err, isobar.ErrNotFound) {
		t.Errorf("a version that changed nothing: %v", err)
	}
	same := wide(10, t0, 1)
	if err := a.Append(&same); !errors.Is(err, archive.ErrKnown) {
		t.Errorf("a version that was there is taken again: %v", err)
	}
}

// TestBounds: files are bounded by age, bytes and number of changes, and what is left is
// the newest.
func TestBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		o    archive.Options
		step time.Duration
		n    int // services of a change
		want func(bytes int64, count int) bool
	}{
		"age":     {archive.Options{MaxAge: 24 * time.Hour}, time.Hour / 2, 1, func(_ int64, n int) bool { return n >= 48 && n <= 54 }},
		"bytes":   {archive.Options{MaxBytes: 200_000}, time.Second, 50, func(b int64, n int) bool { return b <= 200_000 && b > 150_000 && n > 50 }},
		"changes": {archive.Options{MaxChanges: 100, MaxAge: 24 * time.Minute}, time.Second, 1, func(_ int64, n int) bool { return n <= 160 && n >= 40 }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := open(t, dir, tt.o)
			for v := uint64(1); v <= 1000; v++ {
				add(t, a, wide(v, t0.Add(time.Duration(v)*tt.step), tt.n))
			}
			for range 2 {
				all, err := a.Marks("")
				if err != nil || !tt.want(a.Bytes(), len(all)) || all[len(all)-1].Version != 1000 {
					t.Fatalf("%d changes, %d bytes: %v", len(all), a.Bytes(), err)
				}
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
				files, _ := filepath.Glob(filepath.Join(dir, "*"))
				if len(files) > 60 {
					t.Errorf("%d files", len(files))
				}
				a = open(t, dir, tt.o) // and it is the same when it is opened again
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDamage: what is damaged costs the changes after it in its file, and nothing else.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, archive.Options{})
	for v := uint64(1); v <= 20; v++ {
		add(t, a, wide(v, t0.Add(time.Duration(v)*time.Minute), 3))
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.changes"))
	whole, err := os.ReadFile(files[0])
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	random := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		data := slices.Clone(whole)
		if random.IntN(2) == 0 {
			data = data[:random.IntN(len(data))]
		} else {
			data[random.IntN(len(data))] ^= byte(1 + random.IntN(255))
		}
		if err := os.WriteFile(files[0], data, 0o600); err != nil {
			t.Fatal(err)
		}
		a := open(t, dir, archive.Options{})
		all, err := a.Marks("")
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if all[i].Version != uint64(i+1) {
				t.Fatalf("version %d at %d", all[i].Version, i)
			}
			// A block that is damaged is an error, not another answer.
			if c, err := a.Change(all[i].Version, ""); err == nil && (len(c.Services) != 3 || c.Services[2].Sources[0].After[2] != uint16(all[i].Version%7)) {
				t.Fatalf("version %d: %+v", all[i].Version, c)
			}
		}
		add(t, a, wide(100, t0.Add(time.Hour), 1))
		if c, err := a.Change(100, ""); err != nil || len(c.Services) != 1 {
			t.Fatalf("after damage: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		for _, f := range files[1:] {
			_ = os.Remove(f)
		}
		if extra, _ := filepath.Glob(filepath.Join(dir, "*.changes")); len(extra) > 1 {
			_ = os.Remove(extra[1])
		}
	}
}

// TestTimeline: changes are counted in their steps, and the trigger of the largest one shows.
func TestTimeline(t *testing.T) {
	mark := func(seconds int, moved float64, trigger string) archive.Mark {
		return archive.Mark{Made: t0.Add(time.Duration(seconds) * time.Second), Moved: moved, Trigger: trigger}
	}
	marks := []archive.Mark{
		mark(-1, 1, "tick"), mark(0, 0.3, "tick"), mark(9, 0, "operator"), mark(9, 0.2, "health"), mark(29, 0, "restart"), mark(30, 1, "tick"),
	}
	got := archive.TimelineOf(marks, t0, 10*time.Second, 3)
	if !slices.Equal(got.Changes, []int{3, 0, 1}) || !slices.Equal(got.Moved, []float64{0.3, 0, 0}) || !slices.Equal(got.Triggers, []string{"health", "", "restart"}) ||
		!got.Oldest.Equal(t0.Add(-time.Second)) || got.StepSeconds != 10 {
		t.Errorf("%+v", got)
	}
	for at, want := range map[int]int{-2: -1, -1: 0, 5: 1, 9: 3, 100: 5} {
		if i := archive.Standing(marks, t0.Add(time.Duration(at)*time.Second)); i != want {
			t.Errorf("at %d: %d, want %d", at, i, want)
		}
	}
}

// TestBetween: a health change that moved enough precedes the decisions around it, and a
// move of half a percent does not.
func TestBetween(t *testing.T) {
	mark := func(version uint64, seconds int, moved float64, trigger string) archive.Mark {
		return archive.Mark{Version: version, Made: t0.Add(time.Duration(seconds) * time.Second), Moved: moved, Trigger: trigger}
	}
	marks := []archive.Mark{
		mark(1, -1, 1, "health"), mark(2, 0, 0.1, "tick"), mark(3, 5, 0.4, "health"), mark(4, 6, 0.5, "tick"), mark(5, 7, 0.005, "health"),
		mark(6, 8, 0, "tick"), mark(7, 9, 0, "operator"), mark(8, 60, 1, "health"),
	}
	got := []uint64{}
	for _, m := range archive.Between(marks, t0, t0.Add(time.Minute)) {
		got = append(got, m.Version)
	}
	if want := []uint64{3, 4, 2, 5, 7, 6}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestEvents: what came from outside the regular decisions, without slight changes, in its order.
func TestEvents(t *testing.T) {
	var marks []archive.Mark
	for i, m := range []archive.Mark{
		{Trigger: plan.TriggerHealth, Moved: 0.01}, {Trigger: plan.TriggerHealth, Moved: 0.009}, {Trigger: plan.TriggerTick, Moved: 1},
		{Trigger: plan.TriggerTopology, Moved: 0.4}, {Trigger: plan.TriggerTopology, Moved: 0.009}, {Trigger: plan.TriggerTopology},
		{Trigger: plan.TriggerRestart, Moved: 1}, {Trigger: plan.TriggerOperator}, {Trigger: plan.TriggerHealth},
	} {
		m.Version = uint64(i)
		marks = append(marks, m)
	}
	got := []uint64{}
	for _, m := range archive.Events(marks) {
		got = append(got, m.Version)
	}
	if want := []uint64{0, 3, 5, 7}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
