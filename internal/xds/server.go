package xds

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Server serves the published set of views to its streams. The gRPC server
// that it is registered with must use [rpc.ServerCodec].
type Server struct {
	options Options
	metrics *metrics
	nacks   *rpc.LogLimit
	panics  rpc.Panics
	lacking struct { // what clients ask for and does not exist, as it was found last
		mu   sync.Mutex
		at   time.Time
		set  *view.Set
		list []MissingService
	}
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
	handling  chan struct{} // holds a token for each request that is decoded and handled
	work      sync.WaitGroup

	subscriptions atomic.Int64  // how many to make room for
	readmissions  atomic.Uint64 // how often Readmit was called

	// mu guards what follows. It may be taken while a stream's lock is held,
	// never the other way.
	mu          sync.Mutex
	stopped     bool
	dispatching bool
	refreshing  bool // from the first assignment that does not live for ever
	zones       map[isobar.Locality]*localityGroup
	streams     map[uint64]*stream
	clients     map[clientKey]int // how many streams each has that named its node
	pollers     map[pollKey]*poller
	polls       pollBudget
	swept       time.Time // when leases of pollers were looked at
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
		handling: make(chan struct{}, max(leastAtOnce, requestsPerCPU*runtime.GOMAXPROCS(0))),
		zones:    map[isobar.Locality]*localityGroup{},
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

// Publish makes set what all streams get. It does not wait for any of them.
// Sets that are published while an earlier one is on its way overtake it.
func (s *Server) Publish(set *view.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	if s.published.Swap(set) == nil {
		close(s.first)
	}
	if len(set.Lifetimes()) > 0 && !s.refreshing {
		s.refreshing = true
		s.work.Go(s.refresher)
	}
	if !s.dispatching {
		s.dispatching = true
		s.work.Go(s.dispatch)
	}
}

func (s *Server) allZones() []*localityGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.zones))
}

// Changed signals, at least once, that a locality subscribes to a service that
// it did not subscribe to before.
func (s *Server) Changed() <-chan struct{} { return s.changed }

func (s *Server) signalChanged() {
	select {
	case s.changed <- struct{}{}:
	default: // a signal is waiting already
	}
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
	s.metrics.streams.WithLabelValues(form(st.delta)).Inc()
	return nil
}

// release is the counterpart of admit.
func (s *Server) release(st *stream) {
	z := st.close()
	s.names.close(st.account)
	s.mu.Lock()
	defer s.mu.Unlock()
	if z != nil {
		s.part(z)
		k := clientKey{st.peer, st.node.ID}
		if s.clients[k]--; s.clients[k] == 0 {
			delete(s.clients, k)
		}
	}
	delete(s.streams, st.id)
	s.metrics.streams.WithLabelValues(form(st.delta)).Dec()
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
	s.part(z)
}

func (s *Server) part(z *localityGroup) {
	z.members--
	if z.members == 0 {
		delete(s.zones, z.locality)
	}
}

// join finds or makes the zone of a locality, up to date and counted for one
// stream.
func (s *Server) join(l isobar.Locality) (*localityGroup, error) {
	s.mu.Lock()
	z := s.zones[l]
	if z == nil {
		if len(s.zones) >= s.options.MaxLocalities {
			n := len(s.zones)
			s.mu.Unlock()
			return nil, fmt.Errorf("%w client localities: %d are served", errFull, n)
		}
		z = newZone(l, s.signalChanged, &s.names)
		s.zones[l] = z
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
