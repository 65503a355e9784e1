package load_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// learning feeds one locality of four endpoints with windows.
type learning struct {
	c     *load.Capacities
	k     int
	given float64
	last  load.Capacity
}

func newLearning() *learning {
	return &learning{c: load.NewCapacities(load.Settings{Interval: interval}), given: 400}
}

func (l *learning) window(rate, utilization float64) load.Capacity {
	l.k++
	s := &load.ServiceLoad{Name: "checkout", Covered: true, Sites: []load.SiteLoad{{Locality: zoneA, Issued: rate, Utilization: utilization}}}
	got := l.c.Observe(at(float64(l.k)), s, []load.Site{{Locality: zoneA, Endpoints: 4, Usable: 4, Units: 4, Given: l.given}})
	if len(got) == 1 {
		l.last = got[0]
	}
	return l.last
}

// A known capacity is recovered under noise, with or without load at rest, and
// its interval is honest.
func TestCapacityIsLearned(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		capacity := rapid.Float64Range(20, 20_000).Draw(rt, "capacity")
		offset := rapid.Float64Range(0, 0.2).Draw(rt, "offset")
		noise := rapid.Float64Range(0, 0.05).Draw(rt, "noise")
		mean := rapid.Float64Range(0.3, 0.6).Draw(rt, "mean")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		l := newLearning()
		for k := range 240 {
			x := mean * (1 + 0.4*math.Sin(float64(k)/20))
			u := (offset + (1-offset)*x) * (1 + noise*r.NormFloat64())
			l.window(x*capacity, u)
		}
		got := l.last
		if got.State != load.CapacityLearned {
			rt.Fatalf("state %q", got.State)
		}
		if err := math.Abs(4*got.PerUnit/capacity - 1); err > 0.15 {
			rt.Fatalf("learned %.1f of %.1f", 4*got.PerUnit, capacity)
		}
		if slack := 0.05 * got.PerUnit; 4*(got.Low-slack) > capacity+1e-9 || 4*(got.High+slack) < capacity {
			rt.Fatalf("interval %.1f to %.1f misses %.1f", 4*got.Low, 4*got.High, capacity)
		}
		if steps := math.Abs(math.Log(got.PerUnit/100)) / math.Log(1.05); steps < 150 && math.Abs(got.InUse/got.PerUnit-1) > 0.06 {
			rt.Fatalf("in use %.1f of %.1f", got.InUse, got.PerUnit)
		}
	})
}

// A constant rate says nothing, whatever the noise of counting and of the
// reports.
func TestCapacityNeverFromAConstantRate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.Float64Range(1, 5000).Draw(rt, "rate")
		noise := rapid.Float64Range(0, 0.2).Draw(rt, "noise")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		l := newLearning()
		for range 300 {
			counted := max(1, rate*5+math.Sqrt(rate*5)*r.NormFloat64()) / 5
			if got := l.window(counted, max(0.01, 0.5*(1+noise*r.NormFloat64()))); got.InUse > 0 {
				rt.Fatalf("%.1f in use of a constant rate, %q", got.InUse, got.State)
			}
		}
	})
}

func TestCapacitySurvivesSteps(t *testing.T) {
	for _, factor := range []float64{0.5, 0.7, 1.5, 2} {
		l := newLearning()
		capacity := 1000.0
		wave := func(k int) float64 { return 300 + 100*math.Sin(float64(k)/8) }
		for k := range 200 {
			l.window(wave(k), wave(k)/capacity)
		}
		near(t, "before", 4*l.last.PerUnit, capacity, 20)
		capacity *= factor
		for k := range 60 {
			l.window(wave(k), wave(k)/capacity)
		}
		near(t, "after five minutes", 4*l.last.PerUnit, capacity, 0.05*capacity)
		near(t, "in use", 4*l.last.InUse, capacity, 0.07*capacity)
	}
}

// One endpoint of eight that reports nonsense: the capacity stays about right,
// or the estimate is inconclusive.
func TestCapacityWithALiarAmongEndpoints(t *testing.T) {
	for name, lie := range map[string]func(k int, u float64) float64{
		"always full":  func(int, float64) float64 { return 1 },
		"always empty": func(int, float64) float64 { return 0 },
		"ten times":    func(_ int, u float64) float64 { return 10 * u },
		"now and then": func(k int, u float64) float64 { return u + 20*float64(max(0, 1-k%30)) },
		"a constant":   func(int, float64) float64 { return 8 },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLearning()
			for k := range 300 {
				u := 0.4 + 0.15*math.Sin(float64(k)/15)
				got := l.window(1000*u, (7*u+lie(k, u))/8)
				if got.State == load.CapacityLearned && (4*got.PerUnit < 450 || 4*got.PerUnit > 1200) {
					t.Fatalf("learned %.0f of 1000", 4*got.PerUnit)
				}
			}
		})
	}
}

// What was learned stands while the rate is constant and the reports agree, and
// falls when they do not.
func TestCapacityInUseOutlivesLearning(t *testing.T) {
	l := newLearning()
	for k := range 200 {
		x := 300 + 100*math.Sin(float64(k)/8)
		l.window(x, x/1000)
	}
	for range 1500 {
		l.window(300, 0.3)
	}
	if l.last.State == load.CapacityLearned || math.Abs(4*l.last.InUse-1000) > 60 {
		t.Fatalf("after two quiet hours: %q, in use %.0f", l.last.State, 4*l.last.InUse)
	}
	for range 20 {
		l.window(300, 0.9)
	}
	if l.last.InUse != 0 {
		t.Errorf("in use %.0f against the reports", 4*l.last.InUse)
	}
}

// A locality whose utilization stays at its end serves no more than lands there,
// however steady the rate is. What is in use fits once utilization is below its end.
func TestCapacityOfAFullLocality(t *testing.T) {
	l := newLearning()
	l.given = 1000 // as the weakest of others
	rate := 500.0
	for range 150 {
		got := l.window(rate, min(1, rate/400))
		if got.InUse > 0 {
			rate = min(500, 0.8*4*got.InUse) // as plans do
		}
	}
	if got := 4 * l.last.InUse; got < 360 || 0.8*got > 0.96*400 {
		t.Errorf("%.0f/s in use, want what leaves it below 95%%: %+v", got, l.last)
	}
}

// Reports that say full whatever the rate is take half of a locality at most.
func TestCapacityThatIsAlwaysFull(t *testing.T) {
	l := newLearning()
	rate := 400.0
	for range 200 {
		if got := l.window(rate, 8); got.InUse > 0 {
			rate = min(400, 0.8*4*got.InUse)
		}
	}
	if got := 4 * l.last.InUse; got < 195 {
		t.Errorf("%.0f/s in use of the 400 that landed, want at least half", got)
	}
}

// What was learned goes to the next process.
func TestCapacityIsAdopted(t *testing.T) {
	l := newLearning()
	for k := range 200 {
		x := 300 + 100*math.Sin(float64(k)/8)
		l.window(x, x/1000)
	}
	data, err := json.Marshal([]load.Capacity{l.last, {Locality: zoneB, InUse: -1}})
	if err != nil {
		t.Fatal(err)
	}
	var saved []load.Capacity
	if err := json.Unmarshal(data, &saved); err != nil {
		t.Fatal(err)
	}
	next := newLearning()
	next.k = l.k
	next.c.Adopt("checkout", saved)
	if got := next.window(310, 0.31); got.State != load.CapacityLearned || got.InUse != l.last.InUse {
		t.Errorf("%+v, want what was learned: %+v", got, l.last)
	}
}

// A few windows at the end of utilization are chance: they bound nothing.
func TestFewFullWindowsBoundNothing(t *testing.T) {
	l := newLearning()
	l.given = 1000
	for k := range 5 {
		if got := l.window(100, 1); got.InUse > 0 || got.State == load.CapacityFull {
			t.Fatalf("after %d windows: %+v", k+1, got)
		}
	}
}

// TestNothingIsLearnedWithoutRequests: long-lived streams are in progress where
// nobody sends anything new. That is no line, and must not become one of NaN,
// which can't be saved and never goes away.
func TestNothingIsLearnedWithoutRequests(t *testing.T) {
	for _, inProgress := range []float64{10, 40, 400} { // of 20 for each of four endpoints
		l := newLimiting(limitOf(isobar.MetricInFlight, 20))
		l.site.Allowed = 0
		for range 100 {
			l.window(0, inProgress, 0)
		}
		if x := l.last[0]; x.State == load.LimitLearned || x.InUse > 0 {
			t.Errorf("%v in progress: %+v", inProgress, x)
		}
		if _, err := json.Marshal(l.last); err != nil {
			t.Errorf("%v in progress: %v", inProgress, err)
		}
		for k := range 100 { // it learns nevertheless when requests come
			rate := 200 + float64(k%20)*10
			l.window(rate, rate/20, 0)
		}
		if _, err := json.Marshal(l.last); err != nil || len(load.ValidDimensions(l.last)) != 1 {
			t.Errorf("%v in progress, and then requests: %+v, %v", inProgress, l.last, err)
		}
	}
	l := newLearning()
	for range 100 {
		l.window(0, 0.5)
	}
	if l.last.State == load.CapacityLearned || l.last.InUse > 0 {
		t.Errorf("utilization without requests: %+v", l.last)
	}
	if _, err := json.Marshal(l.last); err != nil {
		t.Error(err)
	}
}
