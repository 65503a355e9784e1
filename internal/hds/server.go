package hds

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Defaults and bounds of Options.
const (
	DefaultInterval        = health.DefaultReportInterval
	MinInterval            = time.Second
	DefaultMaxStreams      = 1_000
	DefaultFirstWait       = 30 * time.Second
	DefaultDesignationWait = 5 * time.Second
)

// DefaultEnvoyEndpoints is how many endpoints an Envoy is to probe at most that
// says nothing else in its metadata. It opens a connection to each of them at
// once, and its process ends where it may not open as many files.
const DefaultEnvoyEndpoints = 500

// Options of a Server. The zero value of a field means its default.
type Options struct {
	// Interval is at what interval checkers report; at least MinInterval.
	Interval func() time.Duration
	// Admit is asked for each stream, by Readmit once more, and for each request of
	// a checker that polls, with its context and the checker's node; an error, which should be a gRPC
	// status, refuses it. nil = every node is welcome.
	Admit func(context.Context, rpc.Node) error
	// Account says under what a checker counts, by the context of its stream or
	// request: no account holds more than half of MaxStreams. "" = it is not
	// counted. nil = none is.
	Account func(context.Context) string
	// Identity names who the caller of a stream or request has proved to be, by its
	// context; "" = nobody. nil = nobody does.
	Identity func(context.Context) string

	// EnvoyEndpoints is how many endpoints an Envoy is given at most that says
	// nothing else in its metadata; 0 = DefaultEnvoyEndpoints.
	EnvoyEndpoints int

	MaxStreams int           // checkers at once, those that poll among them
	FirstWait  time.Duration // how long a stream may say nothing before its first message
	// DesignationWait is how long a new checker waits for its designation
	// before it is told to probe nothing. Telling it nothing too early would
	// make a checker that comes back forget what it knows.
	DesignationWait time.Duration

	Log        *slog.Logger          // default: nothing is logged
	Registerer prometheus.Registerer // default: metrics are kept but not exported
}

// Server serves health discovery in all its forms. It is safe for concurrent use.
type Server struct {
	opts    Options
	log     *slog.Logger
	limit   rpc.LogLimit
	panics  rpc.Panics
	metrics *metrics

	mu       sync.Mutex
	live     map[string]*checker // by ID
	names    names
	assigned *assignments
	ended    []health.Ended // not handed over yet
	changed  chan struct{}  // capacity 1

	readmissions atomic.Uint64 // how often Readmit was called

	stopped chan struct{} // closed by Stop
	stop    sync.Once
}

// New makes a server; Register puts it on a gRPC server.
func New(opts Options) *Server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.MaxStreams <= 0 {
		opts.MaxStreams = DefaultMaxStreams
	}
	if opts.EnvoyEndpoints <= 0 {
		opts.EnvoyEndpoints = DefaultEnvoyEndpoints
	}
	if opts.FirstWait <= 0 {
		opts.FirstWait = DefaultFirstWait
	}
	if opts.DesignationWait <= 0 {
		opts.DesignationWait = DefaultDesignationWait
	}
	s := &Server{
		opts:    opts,
		log:     opts.Log,
		metrics: newMetrics(opts.Registerer),
		live:    map[string]*checker{},
		names:   newNames(rand.Uint64N(perturbations)), //nolint:gosec // no secret
		changed: make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}
	s.assigned = newAssignments(&isobar.Topology{}, nil, s.interval(), nil)
	return s
}

func (s *Server) interval() time.Duration {
	if s.opts.Interval == nil {
		return DefaultInterval
	}
	return max(MinInterval, s.opts.Interval())
}

// Stop ends all streams, with a status that makes checkers come back later;
// until then they go on probing. Streams that come after it are refused.
func (s *Server) Stop() { s.stop.Do(func() { close(s.stopped) }) }

// Changed is signalled when there is a reason to Collect before the next tick:
// a checker says something else of an endpoint than it said before, or a
// checker came or went.
func (s *Server) Changed() <-chan struct{} { return s.changed }

func (s *Server) signal() {
	select {
	case s.changed <- struct{}{}:
	default: // the reader will see it all
	}
}

// Designate says what each checker shall probe; a checker that is not named
// probes nothing. It does not wait: each stream tells its checker in its own
// time, only the newest state, and only if that differs from what the checker
// was told. The topology and the designations must not change any more.
func (s *Server) Designate(t *isobar.Topology, designations []health.Designation) {
	interval := s.interval()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.assigned
	s.assigned = newAssignments(t, designations, interval, before.sites())
	all := before.topology != t || before.interval != interval
	for id, c := range s.live { // waking has no order
		was, known := before.keys[id]
		is, now := s.assigned.keys[id]
		if all || known != now || !slices.Equal(was, is) {
			c.wakeUp()
		}
	}
}

func (s *Server) current() *assignments {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assigned
}

// Collect hands over the newest word of each checker on each endpoint that it
// reported on since the last call, in order of the checkers' IDs and services.
// What a checker said in a stream that has ended is not among it: when the
// checker comes back, it may have been started anew.
func (s *Server) Collect(now time.Time) []health.Report {
	present := s.present(now)
	fresh := 0
	for _, c := range present {
		fresh += c.fresh()
	}
	out := make([]health.Report, 0, fresh)
	newest := s.current()
	for _, c := range present {
		out = c.collect(newest, out)
	}
	return out
}

// Checker is a connected checker with what is known of it for operators.
type Checker struct {
	health.Checker

	APIVersion string        `json:"api_version"` // of the API that it speaks: v3, v2 or 2017
	UserAgent  string        `json:"user_agent"`
	Address    string        `json:"address"`    // of the peer
	Polling    bool          `json:"polling"`    // it fetches its work, rather than hold a stream
	Designated int           `json:"designated"` // endpoints that it was told to probe
	Interval   time.Duration `json:"interval"`   // of reports, as told; 0 before that
	LastReport time.Time     `json:"last_report,omitzero"`
	Reports    uint64        `json:"reports"`
	Rejected   uint64        `json:"rejected"`              // entries that were left out
	LastReason string        `json:"last_reason,omitempty"` // of the newest rejection
}

// Checkers lists the connected checkers, in order of their IDs. Those that
// poll are gone when they have been silent for 3 intervals.
func (s *Server) Checkers(now time.Time) []Checker {
	present := s.present(now)
	out := make([]Checker, 0, len(present))
	for _, c := range present {
		out = append(out, c.describe())
	}
	return out
}

// present lists the live checkers by ID, after those that stopped polling have
// been taken out.
func (s *Server) present(now time.Time) []*checker {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*checker, 0, len(s.live))
	for _, c := range s.live {
		if c.polling && c.silent(now, s.assigned.interval) {
			s.remove(c, now)
			continue
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *checker) int { return strings.Compare(a.id, b.id) })
	return out
}

// remove takes a checker out. The caller holds the lock.
func (s *Server) remove(c *checker, now time.Time) {
	if s.live[c.id] != c {
		return
	}
	delete(s.live, c.id)
	s.names.leave(c, now)
	s.metrics.checkers.Set(float64(len(s.live)))
	s.signal()
}

// Room returns how many checkers are connected, and how many may be.
func (s *Server) Room() (connected, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live), s.opts.MaxStreams
}
