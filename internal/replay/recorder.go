package replay

import (
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replay/deep"
)

// ErrSlow says that a recording was given up because its reader did not keep
// up.
var ErrSlow = errors.New("the reader of the recording does not keep up")

// Bounds of what waits to be written.
const (
	DefaultMaxPending = 256 << 20 // bytes
	maxItems          = 4_096
	maxPlans          = 64 // that are kept alive to be summed up
)

// Recorder takes down what a loop gives to pure code. The loop calls it before
// it calls pure code; these calls never wait. [Recorder.Run] writes, in a
// goroutine of its own.
type Recorder struct {
	version    string
	maxPending int

	mu      sync.Mutex
	queue   []item
	pending int // bytes in it
	plans   int // in it
	closed  bool
	failure error
	wake    chan struct{} // capacity 1

	// Owned by the loop.
	topology  *isobar.Topology
	operators health.Table
	turn      bool // one is told, and its plan is not

	// Owned by Run.
	out    *chunker
	sums   summer
	last   *isobar.Topology
	counts Counts
}

// Counts is what was recorded so far.
type Counts struct {
	Plans int
	Bytes int64
}

// item is a record that waits: bytes, or what never changes and is encoded
// later.
type item struct {
	kind          byte
	bytes         []byte
	topology      *isobar.Topology
	before, after *plan.Plan
	failed        string
}

// NewRecorder makes a recorder. version is the program's; at most maxPending
// bytes wait to be written, 0 = DefaultMaxPending.
func NewRecorder(version string, maxPending int) *Recorder {
	if maxPending <= 0 {
		maxPending = DefaultMaxPending
	}
	return &Recorder{version: version, maxPending: maxPending, wake: make(chan struct{}, 1)}
}

// Begin takes down where pure code stands. It is called first, and once.
func (r *Recorder) Begin(s *Start) error {
	types, err := fingerprint()
	if err != nil {
		return err
	}
	about, err := json.Marshal(About{
		Isobar: r.version, Arch: runtime.GOARCH, Types: types, Started: s.Now.UTC(), Services: len(s.Topology.Services),
	})
	if err != nil {
		return err
	}
	r.put(item{kind: kindAbout, bytes: about})
	e := deep.NewEncoder(true)
	if err := e.Encode(s); err != nil {
		return err
	}
	r.topology, r.operators = s.Topology, s.Operators
	r.last = s.Topology
	r.put(item{kind: kindStart, bytes: e.Bytes()})
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// Observe takes down what the monitor is to observe.
func (r *Recorder) Observe(e *health.Event, report, tick time.Duration) {
	r.world(e.Topology, e.Operators)
	o := observed{Report: report, Tick: tick, Event: *e}
	o.Event.Topology, o.Event.Operators = nil, health.Table{}
	r.encode(kindObserve, &o)
}

// Release takes down that a mass flip is believed.
func (r *Recorder) Release(service string, localities []isobar.Locality) {
	r.encode(kindRelease, &released{Service: service, Localities: localities})
}

// Tick takes down a turn that the decider is to decide.
func (r *Recorder) Tick(t *plan.Turn, set health.Table) {
	r.turned(t, set, &turned{How: HowTick})
}

// Reapply takes down a turn for which the weights are to be carried over.
func (r *Recorder) Reapply(t *plan.Turn, set health.Table) {
	r.turned(t, set, &turned{How: HowReapply})
}

// Rollback takes down a turn that returns to an earlier version.
func (r *Recorder) Rollback(t *plan.Turn, set health.Table, h *plan.History, version uint64, service string) {
	r.turned(t, set, &turned{How: HowRollback, History: h, Version: version, Service: service})
}

func (r *Recorder) turned(t *plan.Turn, set health.Table, to *turned) {
	r.world(t.Topology, set)
	to.Turn = *t
	to.Turn.Topology, to.Turn.Health, to.Turn.Previous = nil, health.Table{}, nil
	r.encode(kindTurn, to)
	r.turn = true
}

// Decided takes down what became of the last turn.
func (r *Recorder) Decided(before, after *plan.Plan, err error) {
	if !r.turn {
		return // an order that was refused before anything was to be decided
	}
	r.turn = false
	it := item{kind: kindPlan, before: before, after: after}
	if err != nil {
		it.after, it.failed = nil, err.Error()
	}
	r.put(it)
}

// End ends the recording.
func (r *Recorder) End(reason string) {
	if b, err := json.Marshal(End{Reason: reason}); err == nil {
		r.put(item{kind: kindEnd, bytes: b})
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.signal()
}

// Stopped ends it because the loop does.
func (r *Recorder) Stopped() { r.End(EndStopped) }

// Done reports whether nothing is to be recorded any more.
func (r *Recorder) Done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// world takes down topology and operators' marks where they are others.
func (r *Recorder) world(t *isobar.Topology, set health.Table) {
	if t != r.topology {
		r.topology = t
		r.put(item{kind: kindTopology, topology: t})
	}
	if !set.Equal(r.operators) {
		r.operators = set
		r.encode(kindOperators, &operators{set})
	}
}

// encode puts a value at once: it may change when the loop goes on.
func (r *Recorder) encode(kind byte, v any) {
	e := deep.NewEncoder(false)
	if err := e.Encode(v); err != nil {
		r.fail(err)
		return
	}
	r.put(item{kind: kind, bytes: e.Bytes()})
}

func (r *Recorder) put(it item) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.queue = append(r.queue, it)
	r.pending += len(it.bytes)
	if it.kind == kindPlan {
		r.plans++
	}
	full := r.pending > r.maxPending || len(r.queue) > maxItems || r.plans > maxPlans
	r.mu.Unlock()
	if full {
		r.fail(ErrSlow)
	}
	r.signal()
}

// fail gives the recording up.
func (r *Recorder) fail(err error) {
	r.mu.Lock()
	if r.failure == nil {
		r.failure = err
	}
	r.closed, r.queue, r.pending, r.plans = true, nil, 0, 0
	r.mu.Unlock()
	r.signal()
}

func (r *Recorder) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
