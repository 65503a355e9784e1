package checker

import (
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// loop owns what is probed. Three things happen to it: a specifier comes, a
// probe ends, a task is due.
type loop struct {
	opts    *Options
	metrics *metrics
	log     *limitedLog

	applies chan apply
	results chan result // as many as may be in flight, so that no probe waits
	current atomic.Pointer[state]

	schedule schedule
	inFlight int
	rng      *rand.Rand
	closing  sync.WaitGroup // of probers that are no longer needed
	counts   map[corev3.HealthStatus]int
}

// apply hands a specifier to the loop; done is closed when it counts.
type apply struct {
	desired *desired
	done    chan struct{}
}

type result struct {
	task    *task
	outcome Outcome
	err     error
	took    time.Duration
}

func newLoop(opts *Options, m *metrics, log *limitedLog) *loop {
	l := &loop{
		opts: opts, metrics: m, log: log,
		applies: make(chan apply), results: make(chan result, opts.MaxProbes),
		rng:    rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), //nolint:gosec // jitter is no secret
		counts: make(map[corev3.HealthStatus]int),
	}
	l.current.Store(&state{})
	return l
}

// run returns when ctx has ended and nothing of it is left.
func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			l.stop()
			return
		case a := <-l.applies:
			l.apply(a.desired)
			close(a.done)
		case r := <-l.results:
			l.finished(r)
		case <-timer.C:
		}
		timer.Reset(l.start(ctx))
	}
}

// apply makes a specifier the state.
func (l *loop) apply(d *desired) {
	next, ch := merge(l.current.Load(), d, l.opts.MaxEndpoints)
	l.logProblems(d, &ch)
	l.discard(ch.removed)
	now := time.Now()
	for i, t := range ch.added {
		delay, phase := first(t, i, len(ch.added))
		t.due, t.phase = now.Add(delay+upTo(t.check.initialJitter, l.rng)), phase
		l.schedule.add(t)
	}
	clear(l.counts)
	for _, c := range next.clusters {
		for _, h := range c.hosts { // in any order: they are counted only
			h.status.Store(int32(combined(h.tasks)))
			l.counts[h.load()]++
		}
	}
	l.metrics.setEndpoints(l.counts)
	l.current.Store(next)
}

// logProblems counts and logs what a specifier has that can't be done.
func (l *loop) logProblems(d *desired, ch *change) {
	l.metrics.duplicates.Add(float64(d.duplicates))
	if d.duplicates > 0 {
		l.log.warn("clusters are named twice in a specifier; the first of each counts", slog.Int("repeated", d.duplicates))
	}
	for _, err := range d.problems {
		l.metrics.refused.Inc()
		l.log.warn("a specifier is not as it should be", slog.String("error", err.Error()))
	}
	for _, err := range ch.refused {
		l.metrics.refused.Inc()
		l.log.warn("a part of the specifier was refused; other endpoints are probed, and earlier results stay", slog.String("error", err.Error()))
	}
	if ch.dropped > 0 {
		l.metrics.overLimit.Add(float64(ch.dropped))
		l.log.warn("more endpoints than this checker takes; give the fleet more checkers, or raise --max-endpoints",
			slog.Int("limit", l.opts.MaxEndpoints), slog.Int("left_out", ch.dropped))
	}
}

// discard ends tasks. Connections are closed aside: that may take a while.
func (l *loop) discard(tasks []*task) {
	var idle []Prober
	for _, t := range tasks {
		l.schedule.remove(t)
		t.gone = true
		if !t.inFlight && t.prober != nil {
			idle = append(idle, t.prober)
		}
	}
	if len(idle) > 0 {
		l.closing.Go(func() {
			for _, p := range idle {
				p.Close()
			}
		})
	}
}

// start begins what is due and tells how long there is nothing to do.
func (l *loop) start(ctx context.Context) time.Duration {
	now := time.Now()
	for t := l.schedule.next(); t != nil; t = l.schedule.next() {
		if wait := t.due.Sub(now); wait > 0 {
			return wait
		}
		if l.inFlight == l.opts.MaxProbes {
			break // the next result is sent instead
		}
		l.schedule.take()
		if now.Sub(t.due) > time.Second {
			l.metrics.late.Inc()
		}
		l.inFlight++
		t.inFlight = true
		go func() { l.results <- l.probe(ctx, t) }()
	}
	l.metrics.inFlight.Set(float64(l.inFlight))
	return time.Hour
}

// probe runs on a goroutine of its own and touches nothing of the task but its
// prober and what never changes.
func (l *loop) probe(ctx context.Context, t *task) (r result) {
	began := time.Now()
	r.task = t
	defer func() {
		if p := recover(); p != nil {
			l.metrics.panics.Inc()
			l.log.error("a probe failed by an internal error; other probes continue",
				slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
			r.outcome, r.err = Broken, fmt.Errorf("internal checker error: %v", p)
		}
		r.took = time.Since(began)
	}()
	if t.prober == nil {
		p, err := l.newProber(t)
		if err != nil {
			r.outcome, r.err = Broken, err
			return r
		}
		t.prober = p
	}
	within, cancel := context.WithTimeout(ctx, t.check.timeout)
	defer cancel()
	r.outcome, r.err = t.prober.Probe(within)
	if ctx.Err() != nil { // the checker stops, which says nothing of the endpoint
		r.outcome = Blind
	}
	return r
}

func (l *loop) newProber(t *task) (Prober, error) {
	if l.opts.NewProber != nil {
		return l.opts.NewProber(t.host.target, t.check.message)
	}
	return t.check.build(t.host.target)
}

// finished counts a result and says when the next probe is.
func (l *loop) finished(r result) {
	t := r.task
	l.inFlight--
	t.inFlight = false
	if t.gone {
		if t.prober != nil {
			l.closing.Go(t.prober.Close)
		}
		return
	}
	l.metrics.probed(t.check.protocol, r.outcome, r.took)
	_, pending := t.verdict.record(r.outcome, t.check)
	l.publish(t.host, r.err)
	wait := t.check.wait(r.outcome, pending, l.rng)
	if t.phase > 0 {
		wait, t.phase = min(wait, t.phase), 0
	}
	t.due = time.Now().Add(wait)
	l.schedule.add(t)
}

// publish sets the status that is reported of a host.
func (l *loop) publish(h *host, why error) {
	was, is := h.load(), combined(h.tasks)
	if was == is {
		return
	}
	h.status.Store(int32(is))
	l.counts[was]--
	l.counts[is]++
	l.metrics.setEndpoints(l.counts)
	l.metrics.changes.WithLabelValues(statusName(is)).Inc()
	attrs := []slog.Attr{
		slog.String("cluster", short(h.target.Cluster)), slog.String("address", h.target.Address),
		slog.String("from", statusName(was)), slog.String("to", statusName(is)),
	}
	if why != nil {
		attrs = append(attrs, slog.String("reason", short(why.Error())))
	}
	l.log.info("the health of an endpoint has changed", attrs...)
}

// stop waits for the probes in flight, which end with their context, and lets
// go of all connections.
func (l *loop) stop() {
	for l.inFlight > 0 {
		r := <-l.results
		l.inFlight--
		r.task.inFlight = false
		if r.task.gone && r.task.prober != nil {
			l.closing.Go(r.task.prober.Close)
		}
	}
	var tasks []*task
	for _, c := range l.current.Load().clusters {
		for _, h := range c.hosts { // in any order: all are closed
			tasks = append(tasks, h.tasks...)
		}
	}
	l.discard(tasks)
	l.closing.Wait()
}

// task is one check of one host: when it is due, and what came of it.
type task struct {
	host    *host
	check   *check
	prober  Prober // nil before the first probe
	verdict verdict

	due      time.Time
	phase    time.Duration // the first wait, which spreads probes; 0 = waited already
	index    int           // in the schedule; -1 = not in it
	inFlight bool
	gone     bool // removed while in flight
}

// schedule is the tasks that wait, the earliest first.
type schedule []*task

func (s *schedule) Len() int           { return len(*s) }
func (s *schedule) Less(i, j int) bool { return (*s)[i].due.Before((*s)[j].due) }
func (s *schedule) Swap(i, j int) {
	t := *s
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push is for package heap.
func (s *schedule) Push(x any) {
	t := x.(*task) //nolint:forcetypeassert // nothing else is pushed
	t.index = len(*s)
	*s = append(*s, t)
}

// Pop is for package heap.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	t.index = -1
	return t
}

func (s *schedule) add(t *task) { heap.Push(s, t) }

func (s *schedule) remove(t *task) {
	if t.index >= 0 {
		heap.Remove(s, t.index)
	}
}

// next is the earliest task; nil for none.
func (s *schedule) next() *task {
	if len(*s) == 0 {
		return nil
	}
	return (*s)[0]
}

func (s *schedule) take() *task { return heap.Pop(s).(*task) } //nolint:forcetypeassert // nothing else is pushed

// stagger is at most the time between the first probes of hosts that are added
// together: few begin nearly at once, thousands are spread over the interval.
const stagger = 10 * time.Millisecond

// golden spreads points over an interval evenly, however many there will be.
const golden = 0.6180339887498949

// first tells when the i-th of n new tasks is due, and how long it waits after
// that, so that later probes are spread over the whole interval.
func first(t *task, i, n int) (delay, phase time.Duration) {
	usual := t.check.usual()
	spread := float64(i+1) * golden
	spread -= float64(int64(spread))
	delay = time.Duration(i) * min(stagger, usual/time.Duration(n))
	phase = max(time.Duration(spread*float64(usual)), leastInterval)
	return delay, phase
}
