package sim

import (
	"math"
	"time"

	"github.com/isobar-xds/isobar"
)

// Sample is what one tick of a run looked like: means over its steps.
type Sample struct {
	At          time.Duration `json:"-"`
	Seconds     float64       `json:"seconds"`      // since the beginning of the run
	Demand      float64       `json:"demand"`       // requests/s that were sent from outside
	MeanMS      float64       `json:"mean_ms"`      // latency of a request with the calls that it causes
	P99MS       float64       `json:"p99_ms"`       // of single hops
	Fullest     float64       `json:"fullest"`      // utilization of the fullest locality
	Utilization float64       `json:"utilization"`  // mean, by capacity
	CrossRegion float64       `json:"cross_region"` // share of the requests
	Failed      float64       `json:"failed"`       // share of the requests
	Shed        float64       `json:"shed"`         // share of the requests
	Classes     []ClassShare  `json:"classes,omitempty"`
}

// totals are sums over some time; rates are summed as requests.
type totals struct {
	roots, hops            float64 // requests from outside; all
	latency                float64 // requests x ms
	answered               float64 // hops that got an answer or timed out
	failed, shed           float64
	crossZone, crossRegion float64
	used, capacity         float64 // capacity weighted utilization
	dollars                float64
	moved                  float64 // requests whose clients changed their minds, per look
	seconds                float64

	classes [isobar.Classes]classTotals // of services that have classes
}

// meter measures a run.
type meter struct {
	w      *world
	blocks []*block
	all    totals
	hist   histogram
	steps  uint64

	loads   [][]siteSum // per service and site, in this tick
	fullest float64     // highest mean utilization of a locality over a tick
	sites   [][]siteSum // over the whole run
	samples []Sample
	settle  settling
}

type siteSum struct{ used, capacity float64 }

func newMeter(w *world) *meter {
	m := &meter{w: w}
	for _, s := range w.services {
		m.loads = append(m.loads, make([]siteSum, len(s.sites)))
		m.sites = append(m.sites, make([]siteSum, len(s.sites)))
	}
	for from := 0; from < len(w.services); from += blockSize {
		to := min(from+blockSize, len(w.services))
		m.blocks = append(m.blocks, &block{w: w, services: w.services[from:to], loads: m.loads[from:to]})
	}
	return m
}

// endTick closes a tick that ends now.
func (m *meter) endTick(now time.Duration) {
	fullest, used, capacity := 0.0, 0.0, 0.0
	for i := range m.loads {
		for j := range m.loads[i] {
			x := &m.loads[i][j]
			used += x.used
			capacity += x.capacity
			if x.capacity > 0 {
				fullest = max(fullest, x.used/x.capacity)
			}
		}
	}
	t, hist := m.sum()
	t.used, t.capacity = used, capacity
	t.moved = m.settle.look(m.w, now)
	m.samples = append(m.samples, Sample{
		At: now, Seconds: now.Seconds(), Demand: over(t.roots, t.seconds), MeanMS: over(t.latency, t.rootsAnswered()),
		P99MS: hist.quantile(0.99), Fullest: fullest, Utilization: over(used, capacity),
		CrossRegion: over(t.crossRegion, t.hops), Failed: over(t.failed, t.hops), Shed: over(t.shed, t.hops),
		Classes: t.byClass(),
	})
	if now > m.w.sc.Warmup {
		m.all.add(&t)
		m.hist.merge(hist)
		m.fullest = max(m.fullest, fullest)
		for i := range m.loads {
			for j, x := range m.loads[i] {
				m.sites[i][j].used += x.used
				m.sites[i][j].capacity += x.capacity
			}
		}
	}
	for i := range m.loads {
		clear(m.loads[i])
	}
}

// rootsAnswered is how many requests from outside the latency is shared by: one
// that is lost on the way has no latency.
func (t *totals) rootsAnswered() float64 {
	if t.hops <= 0 {
		return 0
	}
	return t.roots * t.answered / t.hops
}

func (t *totals) add(o *totals) {
	t.roots += o.roots
	t.hops += o.hops
	t.latency += o.latency
	t.answered += o.answered
	t.failed += o.failed
	t.shed += o.shed
	t.crossZone += o.crossZone
	t.crossRegion += o.crossRegion
	t.used += o.used
	t.capacity += o.capacity
	t.dollars += o.dollars
	t.moved += o.moved
	t.seconds += o.seconds
	for c := range t.classes {
		x := &o.classes[c]
		t.classes[c].add(x.sent, x.shed, x.failed)
	}
}

func over(a, b float64) float64 {
	if b <= 0 || math.IsNaN(a) {
		return 0
	}
	return a / b
}
