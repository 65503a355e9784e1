package sim

import (
	"math"
	"slices"
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

// settling looks at where each group's requests go, tick by tick.
type settling struct {
	looks  []look
	looked bool
}

// look is the shares of all groups with demand, one after the other.
type look struct {
	at     time.Duration
	shares []float64
}

// settledPoints is how near the shares of the end all shares have to stay to
// count as settled.
const settledPoints = 0.02

// look takes down where requests go and returns how many requests/s go elsewhere
// than at the last look.
func (t *settling) look(w *world, now time.Duration) (moved float64) {
	l, marked := look{at: now}, len(w.sc.Marks) > 0
	for _, s := range w.services {
		for _, g := range s.groups {
			if g.rate <= 0 {
				if marked {
					l.shares = append(l.shares, g.mix...)
				}
				continue
			}
			away := 0.0
			for i := range g.mix {
				share := 0.0
				for _, p := range g.populations {
					share += p.rate / g.rate * p.mean.site[i]
				}
				away += math.Abs(share - g.mix[i])
				g.mix[i] = share
			}
			moved += g.rate * away / 2
			if marked {
				l.shares = append(l.shares, g.mix...)
			}
		}
	}
	first := !t.looked
	t.looked = true
	if first {
		moved = 0
	}
	if marked {
		t.looks = append(t.looks, l)
	}
	return moved
}

// after is how long after a disturbance, before the next one, shares last moved:
// the end of the last tick whose shares differ by more than settledPoints from
// those at the end.
func (t *settling) after(from, to time.Duration) time.Duration {
	first, end := -1, -1
	for i := range t.looks {
		if t.looks[i].at > from && first < 0 {
			first = i
		}
		if t.looks[i].at <= to {
			end = i
		}
	}
	if first < 0 || end < first {
		return 0
	}
	for i := end; i >= first; i-- {
		for j, x := range t.looks[i].shares {
			if math.Abs(x-t.looks[end].shares[j]) > settledPoints {
				return t.looks[i].at - from
			}
		}
	}
	return 0
}

// histogram counts latencies in bins that grow by 2%.
type histogram struct {
	bins  [binCount]float64
	total float64
}

const (
	binCount = 820
	binLow   = 0.01 // ms: everything below is in the first bin
	binGrow  = 1.02
)

var binScale = 1 / math.Log(binGrow)

func (h *histogram) add(ms, weight float64) {
	i := 0
	if ms > binLow {
		i = min(binCount-1, int(math.Log(ms/binLow)*binScale))
	}
	h.bins[i] += weight
	h.total += weight
}

func (h *histogram) merge(o *histogram) {
	for i := range h.bins {
		h.bins[i] += o.bins[i]
	}
	h.total += o.total
}

// quantile returns the latency, ms, below which a fraction of the weight lies; 0
// without any.
func (h *histogram) quantile(q float64) float64 {
	if h.total <= 0 {
		return 0
	}
	sum := 0.0
	for i := range h.bins {
		if sum += h.bins[i]; sum >= q*h.total {
			return binLow * math.Pow(binGrow, float64(i)+0.5)
		}
	}
	return binLow * math.Pow(binGrow, binCount)
}

// samplesPerStep is at how many quantiles a step samples the time that requests
// stay at an endpoint; the next steps fill the gaps.
const samplesPerStep = 2

// exponentialAt gives, for one step, quantiles of the exponential distribution
// with mean 1, stratified: over many steps every quantile has its turn.
func exponentialAt(step uint64) (out [samplesPerStep]float64) {
	offset := 0.0
	for f := 0.5; step > 0; step, f = step>>1, f/2 { // van der Corput's sequence
		if step&1 == 1 {
			offset += f
		}
	}
	for i := range out {
		out[i] = -math.Log(1 - (float64(i)+offset)/samplesPerStep)
	}
	return out
}

// ClassShare is what becomes of the requests of one class of clients.
type ClassShare struct {
	Class  isobar.Class `json:"class"`
	Shed   float64      `json:"shed"`   // share that its clients drop as told
	Failed float64      `json:"failed"` // share that met dead endpoints, or timed out
}

// classTotals sums up requests of one class.
type classTotals struct{ sent, shed, failed float64 }

func (t *classTotals) add(sent, shed, failed float64) {
	t.sent += sent
	t.shed += shed
	t.failed += failed
}

// byClass reports the classes that sent anything.
func (t *totals) byClass() []ClassShare {
	var out []ClassShare
	for c := range t.classes {
		if x := &t.classes[c]; x.sent > 0 {
			out = append(out, ClassShare{Class: isobar.Class(c), Shed: x.shed / x.sent, Failed: x.failed / x.sent})
		}
	}
	return out
}

// toldDrop is the part of its requests that an assignment lets a class drop.
func toldDrop(a *isobar.Assignment, class isobar.Class) float64 {
	if a.Classes == nil {
		return a.Drop
	}
	return a.Classes.Drops[class]
}

// sameButDrops reports whether an assignment changes nothing but what classes
// drop: clients acknowledge it as if it dropped nothing, so that what only some
// of them are told keeps no evidence waiting.
func sameButDrops(before, after *isobar.Assignment) bool {
	return before != nil && before.Classes != nil && after.Classes != nil &&
		before.OverprovisioningFactor == after.OverprovisioningFactor &&
		slices.EqualFunc(before.Priorities, after.Priorities, sameTier)
}
