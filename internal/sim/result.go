package sim

import "time"

// Result is what a run showed after its warm-up.
type Result struct {
	Policy string `json:"policy"`
	Title  string `json:"title"`

	MeanMS float64 `json:"mean_ms"` // of a request with the calls that it causes
	P50MS  float64 `json:"p50_ms"`  // of single hops
	P99MS  float64 `json:"p99_ms"`

	Peak        float64 `json:"peak"`        // highest utilization of a locality, mean over a tick
	Fullest     float64 `json:"fullest"`     // of the locality that is fullest on average
	Utilization float64 `json:"utilization"` // mean of all, by capacity

	CrossZone   float64 `json:"cross_zone"`   // share of the requests that leave their zone
	CrossRegion float64 `json:"cross_region"` // share of the requests that leave their region
	DollarsHour float64 `json:"dollars_hour"` // what that costs

	Shed   float64 `json:"shed"`   // share that clients drop as told
	Failed float64 `json:"failed"` // share that met dead endpoints, or timed out
	// Classes tells the same of each class of clients that sends anything, from
	// the one that is shed last; of services that have classes.
	Classes []ClassShare `json:"classes,omitempty"`

	// Churn is points of the traffic that change place per minute.
	Churn float64 `json:"churn"`
	// Settle is how long shares moved after the disturbance that took longest, in
	// seconds; -1 where the scenario has none.
	Settle float64 `json:"settle"`
	// Used is the mean utilization of each locality, by service and locality in the order
	// of the topology.
	Used    [][]float64 `json:"-"`
	Samples []Sample    `json:"samples,omitempty"` // one a tick, from the beginning
}

func (m *meter) result(p Policy) *Result {
	t := &m.all
	r := &Result{
		Policy: p.Name, Title: p.Title,
		MeanMS: over(t.latency, t.rootsAnswered()), P50MS: m.hist.quantile(0.5), P99MS: m.hist.quantile(0.99),
		Peak: m.fullest, Utilization: over(t.used, t.capacity),
		CrossZone: over(t.crossZone, t.hops), CrossRegion: over(t.crossRegion, t.hops),
		DollarsHour: over(t.dollars*time.Hour.Seconds(), t.seconds),
		Shed:        over(t.shed, t.hops), Failed: over(t.failed, t.hops), Classes: t.byClass(),
		Churn:  100 * over(t.moved, over(t.hops, t.seconds)) / (t.seconds / time.Minute.Seconds()),
		Settle: m.settled(), Samples: m.samples,
	}
	for i := range m.sites {
		used := make([]float64, len(m.sites[i]))
		for j, x := range m.sites[i] {
			used[j] = over(x.used, x.capacity)
			r.Fullest = max(r.Fullest, used[j])
		}
		r.Used = append(r.Used, used)
	}
	return r
}

// settled is the longest time that the shares took to converge after a disturbance, s.
func (m *meter) settled() float64 {
	marks := m.w.sc.Marks
	if len(marks) == 0 {
		return -1
	}
	worst := time.Duration(0)
	for i, from := range marks {
		to := m.w.sc.Length
		if i+1 < len(marks) {
			to = marks[i+1]
		}
		worst = max(worst, m.settle.after(from, to))
	}
	return worst.Seconds()
}

// sameFailed is a difference in failures that does not decide which of two
// results is better.
const sameFailed = 0.001

// better prefers fewer failures, then the lower mean latency.
func (r *Result) better(o *Result) bool {
	if d := r.Failed - o.Failed; d > sameFailed || d < -sameFailed {
		return d < 0
	}
	return r.MeanMS < o.MeanMS
}
