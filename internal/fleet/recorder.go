package fleet

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
)

// Recorder counts what clients and backends see, in slots of equal length, so
// that any window of a run can be summed up afterwards. Requests belong to the
// slot in which they were due. Safe for concurrent use.
type Recorder struct {
	began time.Time
	slot  time.Duration
	zones []isobar.Locality
	index map[isobar.Locality]int
	// capacity of each zone, requests/s, whether it lives or not
	capacity []float64

	mu    sync.Mutex
	slots []*slotCounts
	limit int // of slots; 0 = none
}

type slotCounts struct {
	served   Histogram
	failures []failure
	cross    uint64
	late     time.Duration
	arrivals []uint64 // per zone, at its backends, also those turned away
	due      []uint64 // per source, whether they have ended or not
	flows    []uint64 // [source x zone], served
}

// Zone is a locality with the capacity of its backends.
type Zone struct {
	Locality isobar.Locality
	Capacity float64 // requests/s
}

// NewRecorder makes a recorder that began at a time; zones are also the sources.
func NewRecorder(began time.Time, slot time.Duration, zones []Zone) *Recorder {
	r := &Recorder{began: began, slot: slot, index: make(map[isobar.Locality]int, len(zones))}
	for i, z := range zones {
		r.zones = append(r.zones, z.Locality)
		r.capacity = append(r.capacity, z.Capacity)
		r.index[z.Locality] = i
	}
	return r
}

// restart discards everything and records from a time on, for a number of slots.
func (r *Recorder) restart(began time.Time, slots int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began, r.slots, r.limit = began, nil, slots
}

// at finds the slot of a time, making it if need be; nil before the beginning
// and after the last slot. The caller holds the lock.
func (r *Recorder) at(t time.Time) *slotCounts {
	if t.Before(r.began) {
		return nil
	}
	i := int(t.Sub(r.began) / r.slot)
	if r.limit > 0 && i >= r.limit {
		return nil
	}
	for len(r.slots) <= i {
		n := len(r.zones)
		r.slots = append(r.slots, &slotCounts{
			arrivals: make([]uint64, n), due: make([]uint64, n), flows: make([]uint64, n*n),
		})
	}
	return r.slots[i]
}

// Arrived counts a request that reached a backend of a zone.
func (r *Recorder) Arrived(zone isobar.Locality, t time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, z := r.at(t), r.position(zone); s != nil && z >= 0 {
		s.arrivals[z]++
	}
}

// Wanted counts a request of a source's clients, when it was due. It is
// counted before it ends: an overloaded fleet answers late, and what its
// clients want to send is no less for that.
func (r *Recorder) Wanted(source isobar.Locality, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, z := r.at(due), r.position(source); s != nil && z >= 0 {
		s.due[z]++
	}
}

// Open is how many requests are wanted and have not ended.
func (r *Recorder) Open() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var wanted, ended uint64
	for _, s := range r.slots {
		for _, n := range s.due {
			wanted += n
		}
		ended += s.served.Count() + uint64(len(s.failures))
	}
	return wanted - min(wanted, ended)
}

// Sample is one request as its client saw it, once it has ended.
type Sample struct {
	Source  isobar.Locality
	Landed  isobar.Locality // zero when no backend was reached
	Backend string          // address of the backend that had it; empty when none was reached
	Due     time.Time       // when it should have been sent
	Late    time.Duration   // how much later it was sent
	Latency time.Duration   // from when it was due until the answer, good or bad
	Failed  bool
	Cause   string // why it failed, a gRPC status code for instance
}

// Record counts a request that ended.
func (r *Recorder) Record(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot, from, to := r.at(s.Due), r.position(s.Source), r.position(s.Landed)
	if slot == nil || from < 0 {
		return
	}
	slot.late = max(slot.late, s.Late)
	if s.Failed || to < 0 {
		slot.failures = append(slot.failures, failure{ended: s.Due.Add(s.Latency).Sub(r.began), cause: s.Cause, at: s.Backend})
		return
	}
	slot.served.Add(s.Latency)
	slot.flows[from*len(r.zones)+to]++
	if s.Source.Region != s.Landed.Region {
		slot.cross++
	}
}

func (r *Recorder) position(l isobar.Locality) int {
	if i, ok := r.index[l]; ok {
		return i
	}
	return -1
}

// Summary sums up a window of a run.
type Summary struct {
	Requests    uint64        // that were due and have ended
	Served      uint64        // answered well
	Failed      uint64        // refused, timed out or lost
	Causes      []Cause       // of the failures, the most frequent first
	CrossRegion float64       // share of the served that left their region, 0 to 1
	Mean, P99   time.Duration // latency of the served
	Late        time.Duration // the latest sending of a request: the load generator's own slowness
	Zones       []ZoneSummary // in the recorder's order
}

// ZoneSummary is one zone in a window.
type ZoneSummary struct {
	Locality isobar.Locality
	Demand   float64   // requests/s that its clients wanted to send
	Arrived  float64   // requests/s that reached its backends
	Load     float64   // Arrived / capacity: above 1 it cannot keep up
	Sent     []float64 // requests/s of its clients served in each zone
}

// Fullest is the largest load of a zone.
func (s *Summary) Fullest() (l isobar.Locality, load float64) {
	for i := range s.Zones {
		if z := &s.Zones[i]; z.Load > load || i == 0 {
			l, load = z.Locality, z.Load
		}
	}
	return l, load
}

// Window sums up the slots from one offset from the beginning to another,
// rounded down to whole slots.
func (r *Recorder) Window(from, to time.Duration) Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sum(int(from/r.slot), int(to/r.slot))
}

func (r *Recorder) sum(from, to int) Summary {
	n := len(r.zones)
	from = max(0, from) // no time went by before the beginning
	total := slotCounts{arrivals: make([]uint64, n), due: make([]uint64, n), flows: make([]uint64, n*n)}
	for i := from; i < min(to, len(r.slots)); i++ {
		s := r.slots[i]
		total.served.Merge(&s.served)
		total.failures = append(total.failures, s.failures...)
		total.cross += s.cross
		total.late = max(total.late, s.late)
		addCounts(total.arrivals, s.arrivals)
		addCounts(total.due, s.due)
		addCounts(total.flows, s.flows)
	}
	out := Summary{
		Served: total.served.Count(), Failed: uint64(len(total.failures)),
		Mean: total.served.Mean(), P99: total.served.Quantile(0.99),
		Late: total.late, Causes: causesOf(total.failures),
	}
	out.Requests = out.Served + out.Failed
	if out.Served > 0 {
		out.CrossRegion = float64(total.cross) / float64(out.Served)
	}
	seconds := float64(max(1, to-from)) * r.slot.Seconds()
	for z, l := range r.zones {
		zs := ZoneSummary{
			Locality: l,
			Demand:   float64(total.due[z]) / seconds,
			Arrived:  float64(total.arrivals[z]) / seconds,
		}
		if r.capacity[z] > 0 {
			zs.Load = zs.Arrived / r.capacity[z]
		}
		for _, f := range total.flows[z*n : (z+1)*n] {
			zs.Sent = append(zs.Sent, float64(f)/seconds)
		}
		out.Zones = append(out.Zones, zs)
	}
	return out
}

func addCounts(to, from []uint64) {
	for i, c := range from {
		to[i] += c
	}
}

// failure is a request that failed.
type failure struct {
	ended time.Duration // from the beginning of the run
	cause string
	at    string // the address of the backend that had the request; empty when none had
}

// Cause is why requests failed, and how many.
type Cause struct {
	What  string `json:"what"` // a gRPC status code for instance
	Count uint64 `json:"count"`
}

// String implements [fmt.Stringer].
func (c Cause) String() string { return fmt.Sprintf("%d %s", c.Count, c.What) }

// unknownCause stands for failures of which nobody said why.
const unknownCause = "unknown"

// causesOf counts the causes of failures, the most frequent first.
func causesOf(failures []failure) []Cause {
	counts := make(map[string]uint64)
	for _, f := range failures {
		counts[cmp.Or(f.cause, unknownCause)]++
	}
	var out []Cause
	for what, n := range counts {
		out = append(out, Cause{What: what, Count: n})
	}
	slices.SortFunc(out, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.What, b.What))
	})
	return out
}

func joinCauses(causes []Cause) string {
	var parts []string
	for _, c := range causes {
		parts = append(parts, c.String())
	}
	return strings.Join(parts, ", ")
}

// FailedUnderWay counts the requests that were due in a window of a run, but
// failed after an event at an offset at or after its end. The window is rounded
// down to whole slots.
func (r *Recorder) FailedUnderWay(from, to, event time.Duration) uint64 {
	return r.countFailures(from, to, func(f *failure) bool { return f.ended >= event })
}

func (r *Recorder) countFailures(from, to time.Duration, counts func(*failure) bool) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n uint64
	for i := max(0, int(from/r.slot)); i < min(int(to/r.slot), len(r.slots)); i++ {
		for j := range r.slots[i].failures {
			if counts(&r.slots[i].failures[j]) {
				n++
			}
		}
	}
	return n
}

// FailedAt counts the requests that were due in a window of a run, and that a
// backend had when they failed, from one offset on and before another. The
// window is rounded down to whole slots.
func (r *Recorder) FailedAt(backend string, from, to, since, before time.Duration) uint64 {
	return r.countFailures(from, to, func(f *failure) bool {
		return f.at == backend && f.ended >= since && f.ended < before
	})
}

// settleSpan is the length of the moving windows that tell whether a fleet has
// settled: over three slots the randomness of arrivals is small.
const settleSpan = 3

// Settled returns how long after an event at one offset the fleet had converged:
// from then until another offset in every moving window of three slots no zone
// is loaded above the limit and no request fails. When it has not, why tells
// what was amiss in the last of these windows, else why is empty.
func (r *Recorder) Settled(event, end time.Duration, limit float64) (after time.Duration, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, last := int(event/r.slot), int(end/r.slot)-settleSpan
	settled := last + 1
	for i := last; i >= first; i-- {
		w := r.sum(i, i+settleSpan)
		if why = w.trouble(limit); why != "" {
			break
		}
		settled = i
	}
	if settled > last {
		return 0, fmt.Sprintf("in the last %v %s", settleSpan*r.slot, why)
	}
	return time.Duration(settled-first) * r.slot, ""
}

// trouble returns what keeps a window from being that of a converged fleet; it is
// empty when nothing does.
func (s *Summary) trouble(limit float64) string {
	if s.Requests == 0 {
		return "nothing was sent"
	}
	var what []string
	if l, load := s.Fullest(); load > limit {
		what = append(what, fmt.Sprintf("%s was loaded at %.0f%%, above %.0f%%", l, 100*load, 100*limit))
	}
	if s.Failed > 0 {
		what = append(what, fmt.Sprintf("%d of %d requests failed (%s)", s.Failed, s.Requests, joinCauses(s.Causes)))
	}
	return strings.Join(what, " and ")
}

// Histogram counts durations in buckets that grow by a constant ratio, so that
// a quantile is off by at most half of it (3.5%) between 10 us and 100 s. The
// zero Histogram is empty. Not safe for concurrent use.
type Histogram struct {
	counts [histogramBuckets]uint32
	n      uint64
	sum    time.Duration
	most   time.Duration
}

const (
	histogramFirst   = 10 * time.Microsecond
	histogramRatio   = 1.07
	histogramBuckets = 240 // 10 us x 1.07^239 = 106 s
)

var logHistogramRatio = math.Log(histogramRatio)

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	d = max(0, d)
	i := 0
	if d > histogramFirst {
		i = min(histogramBuckets-1, int(math.Ceil(math.Log(float64(d)/float64(histogramFirst))/logHistogramRatio)))
	}
	h.counts[i]++
	h.n++
	h.sum += d
	h.most = max(h.most, d)
}

// Merge adds all that o counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.sum += o.sum
	h.most = max(h.most, o.most)
}

// Count is how many durations were added.
func (h *Histogram) Count() uint64 { return h.n }

// Mean is the mean, exactly; 0 when nothing was added.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return h.sum / time.Duration(h.n) //nolint:gosec // n fits: it counts calls of Add
}

// Quantile returns the duration that a fraction q of all stays at or below, from
// 0 to 1; 0 when nothing was added.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(min(1, max(0, q)) * float64(h.n)))
	var seen uint64
	for i, c := range h.counts {
		seen += uint64(c)
		if seen >= max(1, rank) {
			// The middle of the bucket, by ratio; nothing exceeds the largest.
			upper := float64(histogramFirst) * math.Pow(histogramRatio, float64(i)-0.5)
			return min(h.most, time.Duration(upper))
		}
	}
	return h.most
}
