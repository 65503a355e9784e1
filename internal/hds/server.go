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

	discoveryv2 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	// Admit is asked for each stream, by Reauthorize once more, and for each request of
	// a checker that polls, with its context and the checker's node; an error, which should be a gRPC
	// status, refuses it. nil = every node is welcome.
	Admit func(context.Context, rpc.Node) error
	// Place fills in the locality of a client that connects from an address and names the
	// machine that it runs on, before Admit is asked. It may wait a little. nil = nobody does.
	Place func(ctx context.Context, peer string, n *rpc.Node)
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

// Server serves health discovery in all its API versions. It is safe for concurrent use.
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

	reauthorizations atomic.Uint64 // how often Reauthorize was called

	reading rpc.Turns     // of messages of checkers
	stopped chan struct{} // closed by Stop
	stop    sync.Once
}

// readAtOnce is how many messages are decoded and handled at once: one that reports 50,000
// endpoints takes 30 MiB meanwhile.
const readAtOnce = 4

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
		reading: make(rpc.Turns, readAtOnce),
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
// checker comes back, it may have been restarted.
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

	APIVersion string // transport API version: v3, v2 or 2017
	UserAgent  string
	Address    string        // of the peer
	Polling    bool          // it polls instead of holding a stream
	Designated int           // endpoints in the last assignment sent to it
	Interval   time.Duration // of its reports, as last sent to it; 0 = nothing was sent
	LastReport time.Time
	Reports    uint64
	Rejected   uint64 // entries that were ignored
	LastReason string // of the newest rejection
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

// Connections returns how many checkers are connected, and how many may be.
func (s *Server) Connections() (connected, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live), s.opts.MaxStreams
}

// admit enters a checker, or refuses it. The caller holds the lock.
func (s *Server) admit(c *checker, now time.Time) error {
	if len(s.live) >= s.opts.MaxStreams {
		return s.refuse(refusedFull, codes.ResourceExhausted, "too many checkers")
	}
	if c.account != "" && 2*s.held(c.account) >= s.opts.MaxStreams {
		return s.refuse(refusedFull, codes.ResourceExhausted, "too many checkers from one address")
	}
	if old := s.names.enter(c, now, s.assigned.interval); old != nil {
		close(old.evicted)
	}
	s.live[c.id] = c
	s.metrics.checkers.Set(float64(len(s.live)))
	s.signal()
	return nil
}

// held counts the checkers of an account. The caller holds the lock.
func (s *Server) held(account string) int {
	n := 0
	for _, c := range s.live {
		if c.account == account {
			n++
		}
	}
	return n
}

func (s *Server) account(ctx context.Context) string {
	if s.opts.Account == nil {
		return ""
	}
	return s.opts.Account(ctx)
}

// places reports whether Options.Place is to fill in the locality of a checker.
func (s *Server) places(n *rpc.Node) bool { return s.opts.Place != nil && n.Machine != "" }

// place has Options.Place fill in the locality of a checker that names its machine.
func (s *Server) place(ctx context.Context, peer string, n *rpc.Node) {
	if s.places(n) {
		_ = s.reading.Out(func() error {
			s.opts.Place(ctx, peer, n)
			return nil
		})
	}
}

// allowed asks whether a checker may be what it says it is.
func (s *Server) allowed(ctx context.Context, n rpc.Node) error {
	if s.opts.Admit == nil {
		return nil
	}
	err := s.opts.Admit(ctx, n)
	if err != nil {
		s.metrics.refused.WithLabelValues(refusedDenied).Inc()
	}
	return err
}

// Reauthorize asks Options.Admit again about every open stream, and ends those that it
// refuses by now with its error. It is to be called after what Admit goes by has
// changed: a stream that is on its way in meanwhile is asked about once more,
// too. Those that poll are asked at each request.
func (s *Server) Reauthorize() {
	s.reauthorizations.Add(1)
	s.mu.Lock()
	open := make([]*checker, 0, len(s.live))
	for _, c := range s.live { // ending has no order
		if c.stream != nil {
			open = append(open, c)
		}
	}
	s.mu.Unlock()
	for _, c := range open {
		err := s.allowed(c.stream.grpc.Context(), c.hello.Node)
		if err == nil {
			continue
		}
		select {
		case c.stream.denied <- err:
		default: // it is ending already
		}
	}
}

// refuse counts and logs why a stream is ended, and makes its status.
func (s *Server) refuse(reason string, code codes.Code, text string) error {
	s.metrics.refused.WithLabelValues(reason).Inc()
	if skipped, ok := s.limit.Allow(time.Now()); ok && reason != refusedStopped {
		s.log.Warn("a health discovery stream was ended", "reason", reason, "text", text, "skipped_lines", skipped)
	}
	return status.Error(code, text)
}

// service2017 is the name of the service in the API version of 2017. Its messages are
// those of v2 with fewer fields.
const service2017 = "envoy.api.v2.HealthDiscoveryService"

const (
	streamMethod = "StreamHealthCheck"
	fetchMethod  = "FetchHealthCheck"
)

// Register makes r serve health discovery in all its API versions. The gRPC server
// must have been made with [rpc.ServerCodec]: the first message of old
// checkers can be read from its bytes only.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	of2017 := discoveryv2.HealthDiscoveryService_ServiceDesc
	of2017.ServiceName = service2017
	for _, d := range []struct {
		service grpc.ServiceDesc
		api     rpc.APIVersion
	}{
		{healthv3.HealthDiscoveryService_ServiceDesc, rpc.V3},
		{discoveryv2.HealthDiscoveryService_ServiceDesc, rpc.V2},
		{of2017, rpc.V2017},
	} {
		d.service.HandlerType = (*any)(nil)
		d.service.Streams = []grpc.StreamDesc{{
			StreamName: streamMethod, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, g grpc.ServerStream) error { return s.stream(g, d.api) },
		}}
		d.service.Methods = []grpc.MethodDesc{{
			MethodName: fetchMethod, Handler: s.fetcher("/"+d.service.ServiceName+"/"+fetchMethod, d.api),
		}}
		r.RegisterService(&d.service, s)
	}
}

// fetcher serves single requests. All API versions are read with the types of v3:
// some Envoys report in a way of v3 on services of v2.
func (s *Server) fetcher(name string, api rpc.APIVersion) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		handle := func(ctx context.Context, in any) (any, error) {
			return s.fetchOne(ctx, in.(*healthv3.HealthCheckRequestOrEndpointHealthResponse), api) //nolint:forcetypeassert // it is the one below
		}
		in := &healthv3.HealthCheckRequestOrEndpointHealthResponse{}
		if err := s.reading.Decode(ctx, decode, in); err != nil {
			return nil, err
		}
		defer s.reading.GiveBack()
		if intercept == nil {
			return handle(ctx, in)
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: s, FullMethod: name}, handle)
	}
}

const (
	// endsWithin is how soon after a specifier a checker ends that may have ended
	// because of it.
	endsWithin = 10 * time.Second
	// mostEnded bounds what is kept of checkers that ended until it is asked for.
	mostEnded = 1_000
)

// Ended returns the checkers that ended their streams, since the last call, soon after a new
// designation and before they reported, in the order of time. The new designation may have ended
// their processes.
func (s *Server) Ended() []health.Ended {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.ended
	s.ended = nil
	return out
}

// ends notes that the peer of a stream ended it.
func (s *Server) ends(c *checker, now time.Time) {
	c.mu.Lock()
	news, told := c.news, c.told
	c.mu.Unlock()
	if told.IsZero() || now.Sub(told) > endsWithin {
		return
	}
	s.metrics.ended.Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) < mostEnded {
		s.ended = append(s.ended, health.Ended{Checker: c.id, Services: news, At: now})
	}
	if skipped, ok := s.limit.Allow(now); ok {
		s.log.Warn("a checker exited after new endpoints were assigned to it", "checker", c.id, "new_services", len(news),
			"first", news[0], "skipped_lines", skipped)
	}
	s.signal()
}

// union joins two sorted lists.
func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// maxMetadata bounds, in bytes, the metadata that one checker adds to its entries, of all
// endpoints together. Metadata beyond it is dropped; the status counts.
const maxMetadata = 1 << 20

// AddMetadata adds to votes what the connected checkers said beside the status
// of an endpoint, as JSON text.
func (s *Server) AddMetadata(reports []health.ServiceReport) {
	said := map[string]map[health.Key]string{}
	for _, c := range s.present(time.Now()) {
		if m := c.metadata(); len(m) > 0 {
			said[c.id] = m
		}
	}
	if len(said) == 0 {
		return
	}
	for i := range reports {
		for j := range reports[i].Endpoints {
			v := &reports[i].Endpoints[j]
			for k := range v.Votes {
				v.Votes[k].Metadata = said[v.Votes[k].Checker][v.Key]
			}
		}
	}
}

// metadata returns what the checker added, of the endpoints where it did.
func (c *checker) metadata() map[health.Key]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported.metadata == 0 {
		return nil
	}
	out := map[health.Key]string{}
	for i := range c.reported.slots {
		if s := &c.reported.slots[i]; s.metadata != "" {
			out[s.key] = s.metadata
		}
	}
	return out
}
