package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Server serves the published set of views to its streams. The gRPC server
// that it is registered with must use [rpc.ServerCodec].
type Server struct {
	options    Options
	metrics    *metrics
	nacks      *rpc.LogLimit
	panics     rpc.Panics
	lacking    missingServices
	missingLog *rpc.LogLimit
	names      nameBudget
	lists      nameLists
	tails      tails

	published atomic.Pointer[view.Set]
	holds     atomic.Bool   // absences are not told; see HoldRemovals
	first     chan struct{} // closed by the first publication
	stop      chan struct{} // closed by Stop
	changed   chan struct{} // capacity 1
	encoding  chan struct{} // holds a token for each answer that is put into JSON
	handling  rpc.Turns
	work      sync.WaitGroup

	reauthorizations atomic.Uint64 // how often Reauthorize was called

	// mu guards what follows. It may be taken while a stream's lock is held,
	// never the other way.
	mu          sync.Mutex
	stopped     bool
	dispatching bool
	refreshing  bool // from the first assignment that does not live for ever
	groups      map[isobar.Locality]*localityGroup
	streams     map[uint64]*stream
	clients     map[clientKey]int // how many streams each has that named its node
	pollers     map[pollKey]*poller
	polls       pollBudget
	sweeping    bool // from the first client that polls
	lastID      uint64
}

// New makes a server; nothing is served before the first Publish.
func New(o Options) *Server {
	s := &Server{
		options: o.withDefaults(),
		nacks:   &rpc.LogLimit{},

		missingLog: &rpc.LogLimit{},

		first:    make(chan struct{}),
		stop:     make(chan struct{}),
		changed:  make(chan struct{}, 1),
		encoding: make(chan struct{}, encodedAtOnce),
		handling: make(rpc.Turns, handledAtOnce()),
		groups:   map[isobar.Locality]*localityGroup{},
		streams:  map[uint64]*stream{},
		clients:  map[clientKey]int{},
		pollers:  map[pollKey]*poller{},
	}
	s.metrics, s.lists.budget = newMetrics(o.Registerer, &s.names), &s.names
	if o.Registerer != nil {
		o.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "isobar_xds_missing_services", Help: "Services that clients subscribe to and that do not exist; 100 at most.",
		}, func() float64 { return float64(len(s.Missing())) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "isobar_xds_clients", Help: "Clients with open xDS streams: the streams of one node on one connection are one client.",
		}, func() float64 { return float64(s.openClients()) }))
	}
	s.tails = newTails(s.options.Identifier)
	s.holds.Store(o.HoldRemovals)
	return s
}

// Stop ends all streams with UNAVAILABLE and makes Publish do nothing. It does
// not wait for the streams: those whose clients do not read end only with
// their connections, so the gRPC server has to be stopped afterwards. Stop may
// be called again.
func (s *Server) Stop() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
		for _, st := range s.streams {
			st.kick()
		}
	}
	s.mu.Unlock()
	s.work.Wait()
}

// Method is what a stream is opened by.
type Method struct {
	// Only is the URL of the one type that the stream serves; "" = all types.
	// Requests may leave their type out, then.
	Only  string
	API   rpc.APIVersion // what the client speaks, as far as the method tells
	Delta bool           // else state of the world
}

// Serve runs a stream until it ends.
func (s *Server) Serve(raw grpc.ServerStream, m Method) error {
	st := &stream{
		session: session{
			server: s,
			api:    m.API,
			delta:  m.Delta,
			peer:   rpc.PeerAddress(raw.Context()),
			wake:   make(chan struct{}, 1),
		},
		raw:       raw,
		direct:    direct(raw),
		unread:    rpc.UnreadOf(raw.Context()),
		only:      m.Only,
		connected: time.Now(),
	}
	if err := s.admit(st); err != nil {
		return s.statusOf(err)
	}
	st.account = s.names.open(s.accountOf(raw.Context()))
	defer s.release(st)
	return s.statusOf(st.run())
}

// admit registers a new stream.
func (s *Server) admit(st *stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped
	}
	if len(s.streams) >= s.options.MaxStreams {
		return fmt.Errorf("%w streams: %d are open", errFull, len(s.streams))
	}
	s.lastID++
	st.id = s.lastID
	s.streams[st.id] = st
	s.metrics.streams.WithLabelValues(apiLabel(st.delta)).Inc()
	return nil
}

// release is the counterpart of admit.
func (s *Server) release(st *stream) {
	g := st.close()
	s.names.close(st.account)
	s.mu.Lock()
	defer s.mu.Unlock()
	if g != nil {
		s.leaveGroup(g)
		k := clientKey{st.peer, st.node.ID}
		if s.clients[k]--; s.clients[k] == 0 {
			delete(s.clients, k)
		}
	}
	delete(s.streams, st.id)
	s.metrics.streams.WithLabelValues(apiLabel(st.delta)).Dec()
}

// clientKey tells clients apart: one node on one connection.
type clientKey struct{ peer, node string }

// met counts the stream of a node that it has named.
func (s *Server) met(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[clientKey{st.peer, st.node.ID}]++
}

func (s *Server) openClients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// leave is the counterpart of join.
func (s *Server) leave(g *localityGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveGroup(g)
}

func (s *Server) leaveGroup(g *localityGroup) {
	g.members--
	if g.members == 0 {
		delete(s.groups, g.locality)
	}
}

// join finds or makes the group of a locality, up to date and counted for one
// stream.
func (s *Server) join(l isobar.Locality) (*localityGroup, error) {
	s.mu.Lock()
	g := s.groups[l]
	if g == nil {
		if len(s.groups) >= s.options.MaxLocalities {
			n := len(s.groups)
			s.mu.Unlock()
			return nil, fmt.Errorf("%w client localities: %d are served", errFull, n)
		}
		g = newLocalityGroup(l, s.signalChanged, &s.names)
		s.groups[l] = g
	}
	g.members++
	s.mu.Unlock()
	g.update(s.published.Load())
	return g, nil
}

// Streams returns how many streams are open, and how many may be.
func (s *Server) Streams() (open, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams), s.options.MaxStreams
}

// Open returns how many streams are open.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// NameMemory returns what the names take that all streams subscribe to, and what they
// may take, in bytes, estimated.
func (s *Server) NameMemory() (used, most int64) {
	return s.names.used.Load(), int64(s.options.NameMemory)
}

// AccountMemory returns the most that the names of one account take, and what they may
// take, in bytes, estimated.
func (s *Server) AccountMemory() (used, most int64) {
	return s.names.fullest(), int64(s.options.NameMemory / accountNames)
}

// PollMemory returns what clients that poll make the server remember, and how much that may
// be, in bytes, estimated; and the same of the account that uses most.
func (s *Server) PollMemory() (used, most, fullest, mostOfOne int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.polls.used), int64(s.options.PollMemory), int64(s.polls.fullest()), int64(s.options.PollMemory / accountPolls)
}

// accountOf says under which account a stream or poll counts; "" = none.
func (s *Server) accountOf(ctx context.Context) string {
	if s.options.Account == nil {
		return ""
	}
	return s.options.Account(ctx)
}

// Reauthorize asks Options.Admit again about every open stream, and ends those that it
// refuses by now with its error. It is to be called after what Admit goes by has
// changed: a stream that is on its way in meanwhile is asked about once more,
// too. Those that poll are asked at each poll.
func (s *Server) Reauthorize() {
	s.reauthorizations.Add(1)
	s.mu.Lock()
	open := slices.Collect(maps.Values(s.streams))
	s.mu.Unlock()
	for _, st := range open {
		if node, ok := st.named(); ok {
			if err := s.welcome(st, node); err != nil {
				st.finish(err)
			}
		}
	}
}

// welcome asks whether a stream may be what it says it is. No lock is held.
func (s *Server) welcome(st *stream, node rpc.Node) error {
	if s.options.Admit == nil {
		return nil
	}
	err := s.options.Admit(st.raw.Context(), node)
	if err != nil {
		s.metrics.refused.WithLabelValues(refusedDenied).Inc()
	}
	return err
}

// What ends a stream by our own decision; statusOf gives each its code.
var (
	errStopped   = errors.New("the server is stopping")
	errFull      = errors.New("too many")
	errNothing   = errors.New("nothing is published yet")
	errNoRequest = errors.New("no request came")
)

// statusOf maps what ended a stream to a gRPC status.
func (s *Server) statusOf(err error) error {
	if err == nil {
		return nil
	}
	refused := func(reason string, code codes.Code) error {
		s.metrics.refused.WithLabelValues(reason).Inc()
		return status.Error(code, fmt.Sprintf("isobar: %v", err))
	}
	switch {
	case errors.Is(err, rpc.ErrMessage):
		return refused(refusedRequest, codes.InvalidArgument)
	case errors.Is(err, errFull):
		return refused(refusedFull, codes.ResourceExhausted)
	case errors.Is(err, errNothing):
		return refused(refusedNoPlan, codes.Unavailable)
	case errors.Is(err, errNoRequest):
		return refused(refusedSilent, codes.DeadlineExceeded)
	case errors.Is(err, errStopped):
		return status.Error(codes.Unavailable, "isobar: the server is stopping")
	default:
		return err // a status of gRPC already, or the end of the context
	}
}

// Options of a Server. The zero value of a field means its default.
type Options struct {
	Log        *slog.Logger          // default: nothing is logged
	Registerer prometheus.Registerer // default: metrics are kept but not exported
	Identifier string                // control_plane.identifier of every response; default "isobar"
	Limits     resource.Limits       // of a single request

	// Admit is asked once for each stream, with its context and the node of its
	// first request, and again by Reauthorize; an error, which should be a gRPC status, ends the stream.
	// Default: every node is welcome.
	Admit func(context.Context, rpc.Node) error

	// Place fills in the locality of a client that connects from an address and names the
	// machine that it runs on, before Admit is asked. It may wait a little. nil = nobody does.
	Place func(ctx context.Context, peer string, n *rpc.Node)

	// Await is asked for the version that a client shows in its first request of a type
	// on a stream, which another server of the same fleet may have sent. It returns when
	// this server has that version, or does not wait for it; an error, which should be a
	// gRPC status, ends the stream. Default: no version is waited for.
	Await func(ctx context.Context, peer, version string) error
	// Returns is asked when a client without an order of versions, by delta or by polling,
	// shows in its first request of a type that another server of the same fleet may have
	// answered it before. An error, which should be a gRPC status, ends the stream.
	// Default: every client is answered.
	Returns func() error
	// HoldRemovals is where [Server.HoldRemovals] stands at first.
	HoldRemovals bool

	// Account says under what a client counts, by the context of its stream or
	// request: no account holds more than half of what all that poll may have, a
	// quarter of the memory for them, or an eighth of the memory for names that streams
	// subscribe to. "" = it is not counted under any. Default: nobody is.
	Account func(context.Context) string

	// Is2017 tells which of the clients that call the methods of v2 mean their
	// API of 2017; default: none. Only 2017's own methods tell by themselves.
	Is2017 func(rpc.Node) bool

	MaxStreams    int // open streams at once; default 40,000
	MaxLocalities int // different client localities at once; default 2,000
	// PollMemory bounds what clients that poll may make the server remember, in
	// bytes, estimated; default 512 MiB.
	PollMemory int
	// PollSize bounds what one poll is answered, in bytes of its resources as
	// streams get them; in JSON they take some four times as many. Default 8 MiB.
	PollSize int
	// StreamNames bounds what the names that one stream subscribes to may make
	// the server remember, and NameMemory those of all open streams, in bytes,
	// estimated; defaults 64 MiB and 1 GiB.
	StreamNames, NameMemory int
	// ResponseSize is the size in bytes beyond which a response is continued
	// in the next one, where the protocol allows it; default 2 MiB. Clients
	// take 4 MiB.
	ResponseSize int

	// Published is called when the streams that waited for nothing were sent what is
	// published. It returns at once. Default: nobody is told.
	Published func()

	// FirstRequestWait bounds how long a stream may say nothing before its
	// first request; default 30 s.
	FirstRequestWait time.Duration
	// FirstPlanWait bounds how long a new stream waits for the first
	// publication of the process before it is refused; default 10 s.
	FirstPlanWait time.Duration
	// RemovalWait bounds how long removals of clusters wait for changes of
	// listeners and routes to get through; default 10 s.
	RemovalWait time.Duration
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Identifier == "" {
		o.Identifier = "isobar"
	}
	if o.Published == nil {
		o.Published = func() {}
	}
	setDefault(&o.MaxStreams, 40_000)
	setDefault(&o.MaxLocalities, 2_000)
	setDefault(&o.PollMemory, 512<<20)
	setDefault(&o.PollSize, 8<<20)
	setDefault(&o.StreamNames, 64<<20)
	setDefault(&o.NameMemory, 1<<30)
	setDefault(&o.ResponseSize, 2<<20)
	setDefault(&o.FirstRequestWait, 30*time.Second)
	setDefault(&o.FirstPlanWait, 10*time.Second)
	setDefault(&o.RemovalWait, 10*time.Second)
	return o
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
