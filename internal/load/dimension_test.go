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

// limiting feeds the limits of one locality of four endpoints with windows.
type limiting struct {
	d      *load.Dimensions
	limits []isobar.Limit
	site   load.Site
	k      int
	last   []load.Dimension
}

func newLimiting(limits ...isobar.Limit) *limiting {
	return &limiting{
		d: load.NewDimensions(load.Settings{Interval: interval}), limits: limits,
		site: load.Site{Locality: zoneA, Endpoints: 4, Usable: 4, Size: 4, Headroom: 800, Allowed: 800, Least: 400},
	}
}

// window lets a window pass in which rate requests/s land, with so many in
// progress in all, and endpoints report so much heap.
func (l *limiting) window(rate, inProgress, heap float64) {
	l.k++
	s := &load.ServiceLoad{Name: "checkout", Covered: true, Sites: []load.SiteLoad{{
		Locality: zoneA, Issued: rate, InProgress: inProgress, Metrics: []load.Metric{{Name: "heap", Mean: heap}},
	}}}
	l.last = l.d.Observe(at(float64(l.k)), s, l.limits, []load.Site{l.site})
}

func limitOf(metric string, most float64) isobar.Limit {
	return isobar.Limit{Metric: metric, Max: most}
}

// dumbLine is least squares by definition: all windows, each as heavy as its age
// says, with a part without load. It tells where the line reaches most.
func dumbLine(rates, values []float64, most float64) float64 {
	var w, mx, my, vx, cxy float64
	weight := func(i int) float64 { return math.Pow(1-1.0/120, float64(len(rates)-1-i)) }
	for i := range rates {
		w += weight(i)
		mx += weight(i) * rates[i]
		my += weight(i) * values[i]
	}
	mx, my = mx/w, my/w
	for i := range rates {
		vx += weight(i) * (rates[i] - mx) * (rates[i] - mx)
		cxy += weight(i) * (rates[i] - mx) * (values[i] - my)
	}
	slope := cxy / vx
	return mx + (most-my)/slope
}

// Whatever the quantity's unit, its part without load and the noise are, the
// rate at which it reaches its limit is that of a line drawn by definition, and
// near the truth.
func TestDimensionIsALine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		most := math.Pow(10, rapid.Float64Range(-3, 9).Draw(rt, "max"))
		rest := rapid.Float64Range(0.1, 0.6).Draw(rt, "rest")
		full := rapid.Float64Range(100, 5000).Draw(rt, "rate at the limit")
		noise := rapid.Float64Range(0, 0.02).Draw(rt, "noise")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		l := newLimiting(limitOf("named_metrics.heap", most))
		l.site.Headroom, l.site.Allowed, l.site.Least = full, full, full/2
		var rates, values []float64
		for k := range 200 {
			rate := full * (0.6 + 0.3*math.Sin(float64(k)/15))
			heap := most * (rest + (1-rest)*rate/full) * (1 + noise*r.NormFloat64())
			rates, values = append(rates, rate), append(values, heap)
			l.window(rate, 0, heap)
		}
		got := l.last[0]
		if got.State != load.LimitLearned {
			rt.Fatalf("state %q", got.State)
		}
		if twin := dumbLine(rates, values, most); math.Abs(4*got.PerEndpoint/twin-1) > 0.03 {
			rt.Fatalf("reached at %.1f/s, by definition at %.1f/s", 4*got.PerEndpoint, twin)
		}
		if math.Abs(4*got.PerEndpoint/full-1) > 0.08 || 4*got.Low > 1.03*full || 4*got.High < 0.97*full {
			rt.Fatalf("reached at %.1f/s (%.1f to %.1f), in truth at %.1f/s", 4*got.PerEndpoint, 4*got.Low, 4*got.High, full)
		}
		if math.Abs(got.InUse/got.PerEndpoint-1) > 0.05 {
			rt.Fatalf("%.1f in use of %.1f", got.InUse, got.PerEndpoint)
		}
	})
}

// Whatever is reported, what is in use stays within its bounds, moves by 5% a
// window at most, and is a number; it goes to the next process and back.
func TestDimensionStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLimiting(limitOf("named_metrics.heap", 1), limitOf(isobar.MetricInFlight, 20))
		wild := rapid.OneOf(rapid.Float64Range(0, 3), rapid.Float64Range(-10, 1e15), rapid.Just(0.0), rapid.Just(1.0))
		was := map[string]float64{}
		for range rapid.IntRange(1, 150).Draw(rt, "windows") {
			l.window(rapid.Float64Range(0, 2000).Draw(rt, "rate"), rapid.Float64Range(0, 1e6).Draw(rt, "in progress"), wild.Draw(rt, "heap"))
			if rapid.IntRange(0, 20).Draw(rt, "gap") == 0 {
				l.k += rapid.IntRange(1, 100).Draw(rt, "missing")
			}
			for _, x := range l.last {
				before, now := was[x.Limit.Metric], x.InUse
				if before == 0 {
					before = 200 // what is in force
				}
				if now != 0 && (!(now >= 100-1e-6 && now <= 250+1e-6) || now < before*0.9499 || now > before*1.0501) {
					rt.Fatalf("%s: %v in use after %v", x.Limit.Metric, now, before)
				}
				was[x.Limit.Metric] = now
			}
		}
		data, err := json.Marshal(l.last)
		if err != nil {
			rt.Fatal(err)
		}
		var saved []load.Dimension
		if err := json.Unmarshal(data, &saved); err != nil {
			rt.Fatal(err)
		}
		if got := load.ValidDimensions(saved); len(got) != len(l.last) {
			rt.Fatalf("%d of %d survive: %s", len(got), len(l.last), data)
		}
	})
}

// A limit that changes keeps what is known of its quantity.
func TestDimensionOfAnotherLimit(t *testing.T) {
	l := newLimiting(limitOf("named_metrics.heap", 1))
	wave := func(k int) float64 { return 500 + 150*math.Sin(float64(k)/10) }
	for k := range 150 {
		l.window(wave(k), 0, 0.1+0.9*wave(k)/700)
	}
	near(t, "at 1", 4*l.last[0].PerEndpoint, 700, 15)
	l.limits = []isobar.Limit{limitOf("named_metrics.heap", 0.82)}
	l.window(wave(150), 0, 0.1+0.9*wave(150)/700)
	if l.last[0].State != load.LimitLearned {
		t.Fatalf("state %q", l.last[0].State)
	}
	near(t, "at 0.82", 4*l.last[0].PerEndpoint, 560, 15)
}

// What was saved may be damaged.
func TestDimensionsThatMakeNoSense(t *testing.T) {
	good := load.Dimension{Locality: zoneA, Limit: limitOf(isobar.MetricInFlight, 5), InUse: 10}
	bad := func(change func(*load.Dimension)) load.Dimension {
		out := good
		change(&out)
		return out
	}
	got := load.ValidDimensions([]load.Dimension{
		bad(func(d *load.Dimension) { d.InUse = -1 }), bad(func(d *load.Dimension) { d.Limit.Max = 0 }),
		bad(func(d *load.Dimension) { d.Limit.Metric = "heap" }), bad(func(d *load.Dimension) { d.Limit.Metric = isobar.MetricRate }),
		bad(func(d *load.Dimension) { d.PerEndpoint = math.Inf(1) }), bad(func(d *load.Dimension) { d.Fit.W = math.NaN() }),
		good, good, bad(func(d *load.Dimension) { d.Limit.DryRun = true }),
	})
	if len(got) != 2 || got[0] != good {
		t.Errorf("%+v", got)
	}
}

// A quantity above its limit that does not follow small changes of the rate is not
// refuted before load was removed: here that helps, as the queue that it counts
// goes. Where it does not, it is refuted, and let go.
func TestLimitIsNotRefutedWithoutAnExperiment(t *testing.T) {
	for _, helps := range []bool{true, false} {
		r := rand.New(rand.NewPCG(3, 1))
		l := newLimiting(limitOf("named_metrics.heap", 1))
		refutedAt := 0.0
		for k := range 400 {
			rate := min(600*(1+0.1*r.NormFloat64()), 4*allowed(l))
			heap := 1.3 + 0.3*r.NormFloat64() // whatever the rate, down to 500
			if helps && 4*allowed(l) < 470 {
				heap = 0.5 * rate / 470
			}
			l.window(rate, 0, heap)
			if l.last[0].Refuted && refutedAt == 0 {
				refutedAt = 4 * l.last[0].InUse
				if k < 30 {
					t.Errorf("refuted after %d windows", k)
				}
			}
		}
		got := l.last[0]
		if helps && (refutedAt > 0 || got.InUse <= 0 || 4*got.InUse > 560) {
			t.Errorf("load taken away helps: %+v", got)
		}
		if !helps && !got.Refuted {
			t.Errorf("nothing helps, and the limit is not refuted: %+v", got)
		}
	}
}

// allowed is what an endpoint may get by the limit in force.
func allowed(l *limiting) float64 {
	if len(l.last) == 0 || l.last[0].InUse <= 0 {
		return l.site.Headroom / 4
	}
	return l.last[0].InUse
}
