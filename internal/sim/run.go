package sim

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// balancer decides where clients send; one serves one run.
type balancer interface {
	// health is called at the beginning, and whenever what is known about
	// endpoints changed.
	health(now time.Duration) error
	// step is called before every step.
	step(now time.Duration) error
	// tick is called after every tick.
	tick(now time.Duration) error
}

// idle is what balancers embed that do nothing at some of these moments.
type idle struct{}

func (idle) health(time.Duration) error { return nil }

func (idle) step(time.Duration) error { return nil }

func (idle) tick(time.Duration) error { return nil }

// Frame is what an observer sees after each tick.
type Frame struct {
	At     time.Duration
	Plan   *plan.Plan // nil for policies that are not Isobar's
	Sample Sample
}

// Run lets a policy balance a scenario's fleet. observe, where it is not nil,
// sees every tick; its error, and the end of ctx, end the run. A policy that may
// be set up in several ways is run in each, and the best result counts.
func Run(ctx context.Context, sc *Scenario, p Policy, observe func(Frame) error) (*Result, error) {
	var best *Result
	for _, m := range p.make {
		r, err := runOne(ctx, sc, p, m, observe)
		if err != nil {
			return nil, err
		}
		if best == nil || r.better(best) {
			best = r
		}
	}
	return best, nil
}

func runOne(ctx context.Context, sc *Scenario, p Policy, set maker, observe func(Frame) error) (*Result, error) {
	w, err := newWorld(sc)
	if err != nil {
		return nil, err
	}
	b, err := set(w)
	if err != nil {
		return nil, fmt.Errorf("sim: %s: %w", p.Name, err)
	}
	w.eject(b)
	m := newMeter(w)
	nextTick := sc.Tick
	for w.now = 0; w.now < sc.Length; w.now += w.step {
		if err := w.advance(b); err != nil {
			return nil, fmt.Errorf("sim: %s at %v: %w", p.Name, w.now, err)
		}
		m.step()
		now := w.now + w.step
		w.report(now)
		if now < nextTick {
			continue
		}
		nextTick += sc.Tick
		m.endTick(now)
		if err := b.tick(now); err != nil {
			return nil, fmt.Errorf("sim: %s at %v: %w", p.Name, now, err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if observe != nil {
			if err := observe(Frame{At: now, Plan: planOf(b), Sample: m.samples[len(m.samples)-1]}); err != nil {
				return nil, err
			}
		}
	}
	return m.result(p), nil
}

func planOf(b balancer) *plan.Plan {
	if x, ok := b.(interface{ current() *plan.Plan }); ok {
		return x.current()
	}
	return nil
}

// Compare runs policies side by side, each in a fleet of its own, as many at a
// time as there are processors. The results are in the order of the policies.
// progress, where it is not nil, is told now and then how much is done, 0 to 1,
// by one caller at a time.
func Compare(ctx context.Context, sc *Scenario, policies []Policy, progress func(done float64)) ([]*Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]*Result, len(policies))
	p := progressMeter{tell: progress}
	for i := range policies {
		p.all += float64(len(policies[i].make)) * float64(sc.Length)
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(len(policies), runtime.GOMAXPROCS(0)) {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(policies) || ctx.Err() != nil {
					return
				}
				r, err := p.run(ctx, sc, policies[i])
				if err != nil {
					cancel(err)
					return
				}
				results[i] = r
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return results, nil
}

// progressMeter adds up what all runs have done.
type progressMeter struct {
	tell func(done float64)
	all  float64

	mu   sync.Mutex
	done float64 // guarded by mu
}

func (p *progressMeter) run(ctx context.Context, sc *Scenario, policy Policy) (*Result, error) {
	if p.tell == nil {
		return Run(ctx, sc, policy, nil)
	}
	return Run(ctx, sc, policy, func(Frame) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done += float64(sc.Tick)
		p.tell(min(1, p.done/p.all))
		return nil
	})
}

// Recorder takes down everything that the loop of a simulated Isobar gives to
// pure code, before it gets it, and what is decided. The first plan of all is
// what it begins with.
type Recorder interface {
	// Begin is given the state from which the recording goes on, to be read before
	// it returns.
	Begin(from Beginning) error
	// Tick and Reapply get the inputs of a decision. The arguments may change when they have
	// returned.
	Tick(t *plan.Turn, operators health.Table)
	Reapply(t *plan.Turn, operators health.Table)
	// Decided is told what was, or why nothing was. Plans don't change.
	Decided(before, after *plan.Plan, err error)
	// Flush is called after each decision; the run waits for it, and ends with its
	// error.
	Flush() error
}

// Beginning is the state of pure code between two turns.
type Beginning struct {
	Now       time.Time
	Decider   *plan.Decider
	Monitor   *health.Monitor // that knows nothing: health is what Operators says
	Current   *plan.Plan
	Topology  *isobar.Topology
	Operators health.Table
}

// Recorded is Isobar with a recorder that listens to one run. Its plans are made
// in one part, however large the fleet is.
func Recorded(r Recorder) Policy {
	p := Isobar()
	p.make = []maker{func(w *world) (balancer, error) {
		b := newLoop(w, 1)
		b.record = &recording{to: r}
		return b, nil
	}}
	return p
}

// recording is a recorder and how far it is; nil records nothing.
type recording struct {
	to    Recorder
	begun bool
	told  bool // of the turn that is being decided
}

func (r *recording) tick(s *shard, t *plan.Turn) {
	if r != nil && r.begun {
		r.to.Tick(t, s.w.known)
		r.told = true
	}
}

func (r *recording) reapply(s *shard, t *plan.Turn) {
	if r != nil && r.begun {
		r.to.Reapply(t, s.w.known)
		r.told = true
	}
}

// decided takes down what a shard decided, and begins with its first plan.
func (r *recording) decided(s *shard, before *plan.Plan, now time.Duration) error {
	switch {
	case r == nil:
		return nil
	case r.told:
		r.told = false
		r.to.Decided(before, s.plan, s.err)
	case s.err == nil:
		at := startTime.Add(now)
		if err := r.to.Begin(Beginning{
			Now: at, Decider: s.decider, Monitor: health.NewMonitor(s.w.sc.Interval, s.w.sc.Tick, health.SavedMonitor{}, at),
			Current: s.plan, Topology: s.topology, Operators: s.w.known,
		}); err != nil {
			return err
		}
		r.begun = true
	}
	return r.to.Flush()
}

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
