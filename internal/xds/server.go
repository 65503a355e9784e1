package xds

import (
	"context"
	"errors"
	"fmt"
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

	subscriptions    atomic.Int64  // how many to make room for
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
	z := st.close()
	s.names.close(st.account)
	s.mu.Lock()
	defer s.mu.Unlock()
	if z != nil {
		s.leaveGroup(z)
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
func (s *Server) leave(z *localityGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveGroup(z)
}

func (s *Server) leaveGroup(z *localityGroup) {
	z.members--
	if z.members == 0 {
		delete(s.groups, z.locality)
	}
}

// join finds or makes the group of a locality, up to date and counted for one
// stream.
func (s *Server) join(l isobar.Locality) (*localityGroup, error) {
	s.mu.Lock()
	z := s.groups[l]
	if z == nil {
		if len(s.groups) >= s.options.MaxLocalities {
			n := len(s.groups)
			s.mu.Unlock()
			return nil, fmt.Errorf("%w client localities: %d are served", errFull, n)
		}
		z = newLocalityGroup(l, s.signalChanged, &s.names)
		s.groups[l] = z
	}
	z.members++
	s.mu.Unlock()
	z.update(s.published.Load())
	return z, nil
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
