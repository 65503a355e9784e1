//go:build !race

package capacity_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar/internal/capacity"
)

func near(got, want, factor float64) bool { return got <= want*factor && got >= want/factor }

// Without evidence a plan uses what is declared, and nothing is claimed.
func TestNothingIsClaimedWithoutEvidence(t *testing.T) {
	prior := capacity.Prior{PerUnit: 100, Width: 2, Service: 0.02}
	var m capacity.Model
	if e := m.Estimate(&prior); e != (capacity.Estimate{}) {
		t.Errorf("before the first window: %+v", e)
	}
	for range 50 { // a tenth of what is declared, and far too few requests to tell
		m.Observe(&capacity.Window{Rate: 10, Sampled: 10, InProgress: 0.2, Goodput: 10, Seconds: 5, Units: 1}, &prior)
	}
	e := m.Estimate(&prior)
	if e.Known || !near(e.Plan, 100, 1.05) {
		t.Errorf("known %v, a plan goes by %.1f: want nothing known, and 100", e.Known, e.Plan)
	}
}

// A declaration that is twice too high: the requests tell.
func TestWrongDeclarationIsFoundOut(t *testing.T) {
	for _, limit := range []int{0, 4} {
		c := course{station: station{pods: 4, workers: 2, service: 0.04, cv2: 1, timeout: 1, abandons: true, clients: 6, window: 5, limit: limit}}
		c.start(5)
		prior := capacity.Prior{PerUnit: 100, Width: 2, Service: 0.04}
		var m capacity.Model
		for range 20 {
			w := c.play(1.28 * c.capacity())
			m.Observe(&w, &prior)
		}
		e := m.Estimate(&prior)
		if limit == 0 && (!e.Known || e.High >= 100) || !near(e.Plan, 50, 1.4) { // a constant load can't tell refusals from other errors
			t.Errorf("limit %d: known %v, %.0f to %.0f, a plan goes by %.0f; the truth is 50", limit, e.Known, e.Low, e.High, e.Plan)
		}
	}
}

// Many small endpoints, declared rightly: requests wait in some while others are
// idle, and that is no sign that the locality is smaller.
func TestEachEndpointQueuesForItself(t *testing.T) {
	for _, pods := range []int{4, 16, 64} {
		c := course{station: station{pods: pods, workers: 1, service: 0.02, cv2: 1, timeout: 2, abandons: true, clients: 6, window: 5}}
		c.start(8)
		prior := capacity.Prior{PerUnit: 50, Width: 2, Service: 0.02}
		var m capacity.Model
		held, expected := 0.0, 0.0
		for range 60 {
			w := c.play(0.8 * c.capacity())
			m.Observe(&w, &prior)
			held += w.InProgress
			expected += capacity.Expected(w.Rate, c.capacity(), c.service, float64(pods))
		}
		if !near(held, expected, 1.5) {
			t.Errorf("%d endpoints: %.0f requests are in progress on average, expected are %.0f", pods, held/60, expected/60)
		}
		if e := m.Estimate(&prior); !near(e.Plan, 50, 1.15) || e.Known && e.High < 50 {
			t.Errorf("%d endpoints: a plan goes by %.1f (%.0f to %.0f), want about 50", pods, e.Plan, e.Low, e.High)
		}
	}
}

// Servers at their limit report a utilization of 1: that is the best window of
// all, and bounds the capacity from above.
func TestFullUtilizationIsEvidence(t *testing.T) {
	prior := capacity.Prior{PerUnit: 200, Width: 2, Service: 0.02}
	for _, x := range []struct{ reported, low, high float64 }{{1, 50, 110}, {0.5, 140, 280}} {
		var m capacity.Model
		for range 20 {
			m.Observe(&capacity.Window{Rate: 100, Goodput: 100, Utilization: x.reported, Seconds: 5, Units: 1}, &prior)
		}
		if e := m.Estimate(&prior); !e.Known || e.Median < x.low || e.Median > x.high {
			t.Errorf("at a reported utilization of %v: known %v, about %.0f (%.0f to %.0f), want %v to %v", x.reported, e.Known, e.Median, e.Low, e.High, x.low, x.high)
		}
	}
}

// When endpoints come, the capacity of a unit stays, and so does what is known of
// it; after a change of what a unit can do it is learned again.
func TestChangeIsFollowed(t *testing.T) {
	c := course{station: station{pods: 4, workers: 2, service: 0.02, cv2: 1, timeout: 1, abandons: true, clients: 6, window: 5}}
	c.start(6)
	prior := capacity.Prior{PerUnit: 100, Width: 2, Service: 0.02}
	var m capacity.Model
	for range 40 {
		w := c.play(0.8 * c.capacity())
		m.Observe(&w, &prior)
	}
	if e := m.Estimate(&prior); !near(e.Plan, 100, 1.25) {
		t.Errorf("as declared: a plan goes by %.0f, want 100", e.Plan)
	}
	rate := 0.8 * c.capacity()
	c.service *= 2.5 // a brown-out
	for range 12 {
		w := c.play(rate)
		m.Observe(&w, &prior)
	}
	if e := m.Estimate(&prior); e.Plan > 60 || e.Plan < 25 {
		t.Errorf("in a brown-out: a plan goes by %.0f, want about 40", e.Plan)
	}
	c.service /= 2.5
	for range 40 {
		w := c.play(rate)
		m.Observe(&w, &prior)
	}
	if e := m.Estimate(&prior); e.Plan < 75 {
		t.Errorf("after a brown-out: a plan goes by %.0f, want about 100", e.Plan)
	}
}

// A process that restarts goes on with what the one before knew.
func TestSavedEvidenceIsRestored(t *testing.T) {
	c := draw(4)
	c.start(4)
	prior := capacity.Prior{PerUnit: 2 * c.capacity() / float64(c.pods), Width: 2, Service: c.service}
	var m capacity.Model
	for range 20 {
		w := c.play(1.1 * c.capacity())
		m.Observe(&w, &prior)
	}
	e := m.Estimate(&prior)
	saved := m.Save(&prior, &e)
	again, ok := capacity.Restore(&saved)
	if !ok {
		t.Fatal("what was saved is refused")
	}
	before, after := m.Estimate(&prior), again.Estimate(&prior)
	if !near(after.Median, before.Median, 1.05) || !near(after.Low, before.Low, 1.05) || !near(after.High, before.High, 1.05) || !near(after.Service, before.Service, 1.3) {
		t.Errorf("restored %+v, want %+v", after, before)
	}
	for _, damage := range []func(s *capacity.Saved){
		func(s *capacity.Saved) { s.Evidence = s.Evidence[1:] },
		func(s *capacity.Saved) { s.Evidence[3] = math.NaN() },
		func(s *capacity.Saved) { s.Service = math.Inf(1) },
		func(s *capacity.Saved) { s.Low = math.MinInt },
	} {
		e := m.Estimate(&prior)
		s := m.Save(&prior, &e)
		damage(&s)
		if _, ok := capacity.Restore(&s); ok {
			t.Errorf("damaged state is taken: %+v", s)
		}
	}
}

// A locality that dies within a window, and refuses all requests after it, tells nothing
// about what it can serve; one whose requests wait until they time out does.
func TestDeathTellsNothing(t *testing.T) {
	prior := capacity.Prior{PerUnit: 100, Width: 2, Service: 0.04}
	window := func(failing, inProgress float64) *capacity.Window {
		return &capacity.Window{Rate: 600, Sampled: 600, InProgress: inProgress, Goodput: 600 * (1 - failing), Failing: failing, Seconds: 5, Units: 8, Timeout: 1}
	}
	var m capacity.Model
	for range 20 {
		m.Observe(window(0, 26), &prior)
	}
	before := m.Estimate(&prior)
	for _, x := range []struct{ failing, inProgress float64 }{{0.45, 1}, {0.999, 0}, {0.9, 3}} {
		if m.Observe(window(x.failing, x.inProgress), &prior) == capacity.Taken {
			t.Errorf("%.1f%% fail, %.0f are in progress: that is evidence", 100*x.failing, x.inProgress)
		}
	}
	if after := m.Estimate(&prior); after != before {
		t.Errorf("before %+v, after %+v", before, after)
	}
	m.Observe(window(0, 26), &prior) // it is back
	for _, x := range []struct{ failing, inProgress float64 }{{0.45, 300}, {0.95, 550}, {0.2, 22}} {
		if m.Observe(window(x.failing, x.inProgress), &prior) != capacity.Taken {
			t.Errorf("%.1f%% fail, %.0f are in progress: that is no evidence", 100*x.failing, x.inProgress)
		}
	}
}

// A locality that hangs at a rate that it served before tells nothing about what it can
// serve; one that serves nothing in time at a higher rate does.
func TestHangTellsNothing(t *testing.T) {
	prior := capacity.Prior{PerUnit: 100, Width: 2, Service: 0.04}
	window := func(rate, failing, inProgress float64) *capacity.Window {
		return &capacity.Window{Rate: rate, Sampled: rate, InProgress: inProgress, Goodput: rate * (1 - failing), Failing: failing, Seconds: 2, Units: 8, Timeout: 1}
	}
	var m capacity.Model
	for range 20 {
		m.Observe(window(480, 0, 21), &prior)
	}
	before := m.Estimate(&prior)
	m.Observe(window(480, 0.5, 480), &prior) // it began in this window
	for range 10 {
		if m.Observe(window(500, 1, 500), &prior) != capacity.Hung {
			t.Fatal("a hang is evidence")
		}
	}
	m.Observe(window(480, 0.5, 40), &prior) // it ended in this window
	if after := m.Estimate(&prior); after.Plan < 0.9*before.Plan {
		t.Errorf("after a hang plans go by %.0f, before it by %.0f", after.Plan, before.Plan)
	}
	m.Observe(window(480, 0, 21), &prior)
	for range 3 {
		if m.Observe(window(900, 1, 900), &prior) != capacity.Taken {
			t.Fatal("a load that was never served, and of which nothing succeeds, is no evidence")
		}
	}
	if after := m.Estimate(&prior); after.Plan > 0.9*before.Plan {
		t.Errorf("in overload plans go by %.0f, before it by %.0f", after.Plan, before.Plan)
	}
}

// What requests to endpoints experienced that hung until health checks found them tells
// nothing about the others; where more fail than these can explain, it does.
func TestFoundEndpointsTellNothing(t *testing.T) {
	prior := capacity.Prior{PerUnit: 100, Width: 2, Service: 0.04}
	window := func(units, failing, inProgress float64) *capacity.Window {
		return &capacity.Window{Rate: 160, Sampled: 160, InProgress: inProgress, Goodput: 160 * (1 - failing), Failing: failing, Seconds: 2, Units: units, Timeout: 1}
	}
	for _, x := range []struct {
		name    string
		begins  []*capacity.Window
		outcome capacity.Outcome
	}{
		{"found at once", []*capacity.Window{window(4, 0.3, 60)}, capacity.Skipped},
		{"found late", []*capacity.Window{window(8, 0.3, 60), window(8, 0.4, 90), window(4, 0.3, 60)}, capacity.Skipped},
		{"found late, when requests have piled up", []*capacity.Window{window(8, 0, 60), window(8, 0, 120), window(8, 0.3, 120), window(4, 0.3, 60)}, capacity.Skipped},
		{"one of many", []*capacity.Window{window(7.5, 0.6, 90)}, capacity.Taken},
		{"one of many, late", []*capacity.Window{window(8, 0.6, 90), window(8, 0.6, 90), window(7.5, 0.03, 7)}, capacity.Taken},
	} {
		t.Run(x.name, func(t *testing.T) {
			var m capacity.Model
			for range 20 {
				m.Observe(window(8, 0, 7), &prior)
			}
			before := m.Estimate(&prior)
			var last capacity.Outcome
			for _, w := range x.begins {
				last = m.Observe(w, &prior)
			}
			if last != x.outcome {
				t.Errorf("the last window is %d, want %d", last, x.outcome)
			}
			if after := m.Estimate(&prior); (after == before) != (x.outcome == capacity.Skipped) {
				t.Errorf("before %+v, after %+v", before, after)
			}
		})
	}
}

// An overload counts although health checks take endpoints and give them back meanwhile.
func TestOverloadCountsWhileEndpointsComeAndGo(t *testing.T) {
	prior := capacity.Prior{PerUnit: 100, Width: 2, Service: 0.04}
	window := func(rate, units, failing, inProgress float64) *capacity.Window {
		return &capacity.Window{Rate: rate, Sampled: rate, InProgress: inProgress, Goodput: rate * (1 - failing), Failing: failing, Seconds: 5, Units: units, Timeout: 1}
	}
	for _, x := range []struct {
		rate, failing float64
		units         []float64
		skipped       int // windows
	}{
		{800, 0.4, []float64{6, 8, 6, 8, 6, 8, 6, 8}, 0},
		{800, 0.35, []float64{6.4, 5.1, 4.1, 3.3, 2.6, 2.1}, 0},
		{320, 0.4, []float64{6, 8, 6, 8, 6, 8, 6, 8}, 2}, // at a rate that was served: once
	} {
		var m capacity.Model
		for range 20 {
			m.Observe(window(320, 8, 0, 14), &prior)
		}
		skipped := 0
		for _, units := range x.units {
			if m.Observe(window(x.rate, units, x.failing, 480), &prior) != capacity.Taken {
				skipped++
			}
		}
		if skipped != x.skipped {
			t.Errorf("%.0f/s, of which %.0f%% fail, over %v units: %d windows are no evidence, want %d", x.rate, 100*x.failing, x.units, skipped, x.skipped)
		}
	}
}

// Requests that failed where servers refused them keep others away only as long as some
// are sent there.
func TestRefusalsAreForgotten(t *testing.T) {
	c := course{station: station{pods: 3, workers: 3, service: 0.035, cv2: 0.5, timeout: 0.5, abandons: true, clients: 6, window: 5, limit: 3}}
	c.start(4)
	prior := capacity.Prior{PerUnit: 86, Width: 2, Service: 0.035}
	var m capacity.Model
	for range 20 {
		w := c.play(1.05 * c.capacity())
		m.Observe(&w, &prior)
	}
	if e := m.Estimate(&prior); e.Another < 0.05 {
		t.Fatalf("full: %.3f of one more request fail", e.Another)
	}
	m.Idle(&prior)
	if e := m.Estimate(&prior); e.Another > 0.05 {
		t.Errorf("idle: %.3f of one more request fail", e.Another)
	}
	for range 200 {
		m.Idle(&prior)
	}
	if e := m.Estimate(&prior); e.Another > 0.005 || !near(e.Median, prior.PerUnit, 1.15) {
		t.Errorf("idle for long: %.4f of one more request fail, the capacity is about %.0f, want about what is declared", e.Another, e.Median)
	}
}

// A locality that is many times slower than usual is not taken for a small one, and where
// both explain what is in progress, plans that go by its capacity go by its slowness.
func TestSlowIsNotSmall(t *testing.T) {
	const slow = 0.12 // seconds, in which no server is busy
	neither, windows := 0, 0
	for seed := range uint64(20) {
		c := course{station: station{pods: 2, workers: 3, service: 0.018, cv2: 0.25, timeout: 2, abandons: true, clients: 8, window: 5}}
		c.start(seed)
		r := rand.New(rand.NewPCG(seed, 1))
		prior := capacity.Prior{PerUnit: 163, Width: 2, Service: c.service}
		var m capacity.Model
		used := 0.4
		for i := range 60 {
			used = min(0.7, max(0.1, used+0.1*r.NormFloat64()))
			w := c.play(used * c.capacity())
			if i >= 10 {
				w.InProgress += slow * w.Rate
			}
			m.Observe(&w, &prior)
			if e := m.Estimate(&prior); i >= 13 {
				windows++
				if e.Plan > 130 && e.Quick < c.service+0.4*slow {
					neither++
				}
			}
		}
	}
	if float64(neither) > 0.025*float64(windows) {
		t.Errorf("in %d of %d windows a plan goes by the full capacity, and by less than half of the slowness", neither, windows)
	}
}

// Nothing that a window or a prior may hold makes a model panic, or tell what is
// no number.
func TestModelTakesAnything(t *testing.T) {
	values := []float64{0, 1e-12, 0.001, 0.5, 1, 3, 1e3, 1e9, 1e13, math.Inf(1), math.NaN(), -1}
	r := rand.New(rand.NewPCG(1, 2))
	pick := func() float64 { return values[r.IntN(len(values))] }
	for range 200 {
		var m capacity.Model
		for range 20 {
			w := capacity.Window{
				Rate: pick(), Sampled: pick(), InProgress: pick(), Network: pick(), Goodput: pick(), Failing: pick(),
				Utilization: pick(), Seconds: pick(), Units: pick(), Timeout: pick(),
			}
			p := capacity.Prior{PerUnit: pick(), Width: pick(), Service: pick()}
			m.Observe(&w, &p)
			e := m.Estimate(&p)
			for _, v := range []float64{e.Low, e.Safe, e.Median, e.High, e.Plan, e.Service, e.Shedding} {
				if !(v >= 0 && v < math.Inf(1)) {
					t.Fatalf("after %+v with %+v: %+v", w, p, e)
				}
			}
			if e.Low > e.Safe || e.Safe > e.Median || e.Median > e.High {
				t.Fatalf("after %+v with %+v: %+v is not in order", w, p, e)
			}
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	c := draw(3)
	c.start(3)
	w := c.play(0.7 * c.capacity())
	prior := capacity.Prior{PerUnit: c.capacity() / float64(c.pods), Width: 2, Service: c.service}
	var m capacity.Model
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(&w, &prior)
	}
}

func BenchmarkEstimate(b *testing.B) {
	c := draw(3)
	c.start(3)
	w := c.play(0.7 * c.capacity())
	prior := capacity.Prior{PerUnit: c.capacity() / float64(c.pods), Width: 2, Service: c.service}
	var m capacity.Model
	m.Observe(&w, &prior)
	for b.Loop() {
		_ = m.Estimate(&prior)
	}
}

// Where servers refuse what is too much, one more request makes more fail than its part;
// where a constant part fails, it does not.
func TestOneMoreRequest(t *testing.T) {
	for _, limit := range []int{0, 2} {
		c := course{station: station{pods: 4, workers: 1, service: 0.02, cv2: 1, timeout: 2, abandons: true, clients: 6, window: 5, limit: limit}}
		if limit == 0 {
			c.failing = 0.1
		}
		c.start(3)
		prior := capacity.Prior{PerUnit: 50, Width: 2, Service: 0.02}
		var m capacity.Model
		fails, windows := 0.0, 0.0
		for w := range 90 {
			got := c.play((0.35 + 0.005*float64(w)) * c.capacity())
			m.Observe(&got, &prior)
			if w >= 80 {
				fails += got.Failing
				windows++
			}
		}
		part := fails / windows
		e := m.Estimate(&prior)
		if limit > 0 && (e.Another < 1.5*part || e.Shedding < 0.8) || limit == 0 && !near(e.Another, part, 1.4) {
			t.Errorf("limit %d: %.3f fail, %.3f of one more, shedding %.2f", limit, part, e.Another, e.Shedding)
		}
	}
}
