package samples_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/samples"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func one(name string, demand float64, used ...float64) []samples.Service {
	s := samples.Service{Name: name, Values: samples.Values{Demand: demand, Drop: demand / 1e6, CrossZone: 0.25}}
	for i, u := range used {
		s.Sites = append(s.Sites, samples.Site{Locality: isobar.Locality{Region: "r", Zone: fmt.Sprintf("z%02d", i)}, Utilization: u})
	}
	return []samples.Service{s}
}

// near compares with the precision that is stated.
func near(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 0.0004*math.Abs(b)+1e-6
}

func demands(t *testing.T, r *samples.Ring, name string, coarse bool) (time.Time, []float64) {
	t.Helper()
	s, ok := r.Series(name, coarse)
	if !ok {
		t.Fatalf("no samples of %q", name)
	}
	out := make([]float64, len(s.Values))
	for i := range s.Values {
		out[i] = s.Values[i].Demand
	}
	return s.Begin, out
}

func expect(t *testing.T, what string, got []float64, want ...float64) {
	t.Helper()
	if len(got) != len(want) || !slices.EqualFunc(got, want, near) {
		t.Errorf("%s: %v instead of %v", what, got, want)
	}
}

// TestSteps: the last sample of a step stays, a step without one is missing, and a
// minute is the mean of its steps once it is over.
func TestSteps(t *testing.T) {
	r := samples.NewRing(0)
	nan := math.NaN()
	for _, x := range []struct {
		at     time.Duration
		demand float64
	}{{0, 100}, {2 * time.Second, 120}, {5 * time.Second, 60}, {20 * time.Second, 0}, {61 * time.Second, 7}} {
		r.Add(noon.Add(x.at), one("checkout", x.demand, 0.5, 0.8))
	}
	begin, fine := demands(t, r, "checkout", false)
	if !begin.Equal(noon) {
		t.Errorf("begins at %s", begin)
	}
	expect(t, "fine", fine, 120, 60, nan, nan, 0, nan, nan, nan, nan, nan, nan, nan, 7)
	_, coarse := demands(t, r, "checkout", true)
	expect(t, "coarse", coarse, 60)
	s, _ := r.Series("checkout", false)
	if len(s.Sites) != 2 || s.Sites[1].Locality.Zone != "z01" || !near(s.Sites[1].Utilization[1], 0.8) || !math.IsNaN(s.Sites[1].Utilization[2]) {
		t.Errorf("localities %+v", s.Sites)
	}
	if !near(s.Values[0].CrossZone, 0.25) || !near(s.Values[0].Drop, 120e-6) || s.Values[0].Gap != 0 {
		t.Errorf("values %+v", s.Values[0])
	}
	if _, ok := r.Series("nobody", false); ok {
		t.Error("samples of a service that is not there")
	}
}

// TestSpans: an hour of fine and a day of coarse steps are kept.
func TestSpans(t *testing.T) {
	r := samples.NewRing(0)
	for i := range 25 * 720 {
		r.Add(noon.Add(time.Duration(i)*samples.FineStep), one("checkout", float64(i)))
	}
	begin, fine := demands(t, r, "checkout", false)
	if len(fine) != 720 || !near(fine[0], 24*720) || !near(fine[719], 25*720-1) || !begin.Equal(noon.Add(24*time.Hour)) {
		t.Errorf("%d fine steps from %s: %v to %v", len(fine), begin, fine[0], fine[len(fine)-1])
	}
	begin, coarse := demands(t, r, "checkout", true)
	if len(coarse) != 1439 || !near(coarse[1438], 1498*12+5.5) || !begin.Equal(noon.Add(60*time.Minute)) {
		t.Errorf("%d coarse steps from %s, last %v", len(coarse), begin, coarse[len(coarse)-1])
	}
}

// TestClockSetBack: what lies after the new time is gone, and samples go on at once.
func TestClockSetBack(t *testing.T) {
	r := samples.NewRing(0)
	for i := range 10 {
		r.Add(noon.Add(time.Duration(i)*samples.FineStep), one("checkout", float64(1+i)))
	}
	r.Add(noon.Add(10*time.Second), one("checkout", 99))
	_, fine := demands(t, r, "checkout", false)
	expect(t, "set back a little", fine, 1, 2, 99)
	r.Add(noon.Add(-48*time.Hour), one("checkout", 5))
	_, fine = demands(t, r, "checkout", false)
	expect(t, "set back two days", fine, 5)
	r.Add(noon.Add(-48*time.Hour+5*time.Second), one("checkout", 6))
	_, fine = demands(t, r, "checkout", false)
	expect(t, "and on", fine, 5, 6)
	r.Add(noon.Add(1000*time.Hour), one("checkout", 7))
	_, fine = demands(t, r, "checkout", false)
	if len(fine) != 720 || fine[719] < 6.9 || !math.IsNaN(fine[0]) {
		t.Errorf("set ahead: %d steps, first %v, last %v", len(fine), fine[0], fine[len(fine)-1])
	}
}

// TestLocalitiesAndServicesComeAndGo: samples of before stay as they were.
func TestLocalitiesAndServicesComeAndGo(t *testing.T) {
	r := samples.NewRing(0)
	r.Add(noon, one("checkout", 1, 0.1))
	r.Add(noon.Add(5*time.Second), one("checkout", 2, 0.2, 0.3))
	r.Add(noon.Add(10*time.Second), one("checkout", 3, 0.4))
	r.Add(noon.Add(15*time.Second), one("search", 4, 0.4))
	s, _ := r.Series("checkout", false)
	nan := math.NaN()
	expect(t, "the first", s.Sites[0].Utilization, 0.1, 0.2, 0.4, nan)
	expect(t, "one that came and went", s.Sites[1].Utilization, nan, 0.3, nan, nan)
	_, fine := demands(t, r, "search", false)
	expect(t, "a service that came", fine, nan, nan, nan, 4)
	r.Add(noon.Add(25*time.Hour), one("search", 4, 0.4))
	r.Add(noon.Add(25*time.Hour+time.Minute), one("search", 4, 0.4))
	if _, ok := r.Series("checkout", false); ok {
		t.Error("a service that has been gone for a day is still there")
	}
	for i := range 100 {
		v := one("search", 4, 0.4)
		v[0].Sites[0].Locality.Zone = fmt.Sprint("new", i)
		r.Add(noon.Add(26*time.Hour), v)
	}
	if s, _ := r.Series("search", false); len(s.Sites) > 10 {
		t.Errorf("%d localities are kept of a service that has one", len(s.Sites))
	}
}

func many(services, sites int, demand float64) []samples.Service {
	var out []samples.Service
	used := make([]float64, sites)
	for i := range used {
		used[i] = 0.5
	}
	for i := range services {
		out = append(out, one(fmt.Sprintf("s%05d", i), demand, used...)...)
	}
	return out
}

// TestBudget: steps double where the memory does not suffice, what was kept stays
// legible, and steps halve again when most services are gone.
func TestBudget(t *testing.T) {
	const budget = 2 << 20
	r := samples.NewRing(budget)
	at := noon
	add := func(s []samples.Service) {
		r.Add(at, s)
		at = at.Add(samples.FineStep)
		if r.Bytes() > budget {
			t.Fatalf("%d bytes of %d", r.Bytes(), budget)
		}
	}
	for i := range 240 {
		add(many(20, 10, float64(10*(1+i/120))))
	}
	if r.Step() != samples.FineStep {
		t.Fatalf("20 services at steps of %s", r.Step())
	}
	add(many(200, 10, 20))
	if r.Step() <= samples.FineStep || r.Omitted() != 0 {
		t.Fatalf("200 services at steps of %s, %d omitted", r.Step(), r.Omitted())
	}
	for _, coarse := range []bool{false, true} {
		begin, demand := demands(t, r, "s00003", coarse)
		if begin.After(noon) || !near(demand[0], 10) || slices.Max(demand) < 17 || slices.Max(demand) > 20.01 {
			t.Errorf("after the steps grew, coarse %t: %v from %s", coarse, demand, begin)
		}
	}
	add(many(5000, 10, 20))
	if r.Omitted() == 0 || r.Omitted() >= 5000 {
		t.Errorf("%d of 5000 services omitted", r.Omitted())
	}
	if _, demand := demands(t, r, "s00003", false); !near(demand[len(demand)-1], 20) {
		t.Errorf("the first services are not kept: %v", demand)
	}
	for range 40 {
		add(many(12, 10, 40))
		at = at.Add(time.Hour)
	}
	if r.Step() != samples.FineStep || r.Omitted() != 0 {
		t.Errorf("steps are %s after most services left, %d omitted", r.Step(), r.Omitted())
	}
}

// TestBudgetIsMemory: the count of bytes is what the process takes.
func TestBudgetIsMemory(t *testing.T) {
	for _, size := range [][2]int{{100, 3}, {1000, 30}} {
		all := many(size[0], size[1], 1)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := samples.NewRing(16 << 20)
		r.Add(noon, all)
		r.Add(noon.Add(time.Minute), all)
		runtime.GC()
		runtime.ReadMemStats(&after)
		took := int(after.HeapAlloc - before.HeapAlloc)
		if took > r.Bytes()*11/10 || took < r.Bytes()*5/10 {
			t.Errorf("%d services x %d localities: counted %d bytes, took %d", size[0], size[1], r.Bytes(), took)
		}
		runtime.KeepAlive(r)
		runtime.KeepAlive(all)
	}
}

// TestPrecision: over all that rates and fractions can be.
func TestPrecision(t *testing.T) {
	for x := 1e-5; x < 1e12; x *= 1.37 {
		r := samples.NewRing(0)
		r.Add(noon, one("checkout", x))
		if _, got := demands(t, r, "checkout", false); math.Abs(got[0]/x-1) > 0.0004 {
			t.Errorf("%g is kept as %g", x, got[0])
		}
	}
	for _, x := range []float64{-1, 0, 1e-9, math.Inf(1)} {
		r := samples.NewRing(0)
		r.Add(noon, one("checkout", x))
		if _, got := demands(t, r, "checkout", false); math.IsNaN(got[0]) || math.IsInf(got[0], 0) {
			t.Errorf("%g is kept as %g", x, got[0])
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	all := many(10_000, 30, 1)
	r := samples.NewRing(0)
	at := noon
	for b.Loop() {
		at = at.Add(samples.FineStep)
		r.Add(at, all)
	}
	b.ReportMetric(r.Step().Seconds(), "step-s")
	b.ReportMetric(float64(r.Bytes())/(1<<20), "MiB")
}
