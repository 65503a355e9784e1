package lrs

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	loadstatsv2 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v2"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Defaults and bounds of Options.
const (
	DefaultInterval   = 5 * time.Second
	MinInterval       = time.Second // clients flood a server that asks for less
	DefaultMaxStreams = 40_000
	DefaultFirstWait  = 30 * time.Second
)

// Options of a Server. The zero value of a field means its default.
type Options struct {
	// Interval is the interval at which clients report; at least MinInterval.
	Interval func() time.Duration
	// Services lists the services to report on, sorted; reports on others are dropped. nil takes
	// everything.
	Services func() []string
	// EndpointGranularity asks clients for statistics by endpoint too.
	EndpointGranularity bool
	// Admit is asked once for each stream, with its context and its node, and
	// again by Reauthorize; an error, which should be a gRPC status, ends the stream. nil = every node is
	// welcome.
	Admit func(context.Context, rpc.Node) error
	// Place fills in the locality of a client that connects from an address and names the machine
	// that it runs on, before Admit is called. It may wait a little. nil = localities are not
	// filled in.
	Place func(ctx context.Context, peer string, n *rpc.Node)
	// Account returns the identity or address that a stream's client counts under, and
	// whether a certificate shows it; nil = they are not known.
	Account func(context.Context) (account string, certified bool)
	// MayReport reports whether clients of a locality may report on a service; their reports on
	// others are dropped. nil = on all.
	MayReport func(client isobar.Locality, service string) bool

	// ManagementCluster is the cluster by which clients reach this server. Every
	// load report of Envoy has it; it is no unknown service.
	ManagementCluster string

	MaxStreams int // open streams at once
	// ReportBurst is how many reports of a stream may come at once; in the long run at most 4 in
	// an interval count. Further reports are ignored, and the stream is read slowly. 0 = 64,
	// negative = reports come as often as they like.
	ReportBurst int
	// ReportMemory is how much memory reports may make the process take until they are collected
	// and released, in bytes. Half of it may be in use, since the heap grows further before Go collects
	// garbage, and the streams that bring them take memory, too; an address without certificate may use an eighth. Reports above that are ignored.
	ReportMemory int
	// Messages returns the memory of messages that clients have sent, in bytes. It counts beside
	// reports, up to half of the memory that they may use: a flood of reports is one of messages, too. nil = it
	// does not count.
	Messages  func() int64
	FirstWait time.Duration // how long a stream may say nothing before its first message

	Log        *slog.Logger          // default: nothing is logged
	Registerer prometheus.Registerer // default: metrics are kept but not exported
}

// Server serves load reporting in all its API versions. It is safe for concurrent use.
type Server struct {
	opts    Options
	log     *slog.Logger
	limit   rpc.LogLimit
	panics  rpc.Panics
	metrics *metrics
	reader  reader.ReportReader
	buffers bufferPool
	budget  reportBudget

	decodings decodings
	joining   chan struct{} // holds a token for each message that was joined and is read
	unknown   unknownClusters

	reauthorizations atomic.Uint64 // how often Reauthorize was called

	asking sync.Mutex            // held while the options are asked, and want replaced
	want   atomic.Pointer[asked] // every report looks at it

	mu      sync.Mutex
	lastID  load.StreamID
	streams []*stream           // that are open, in order of their ids
	ended   []load.StreamWindow // closed since the last Collect
	handed  []load.StreamWindow // the last result of Collect
	stopped chan struct{}       // closed by Stop
	stop    sync.Once
}

// New makes a server; Register puts it on a gRPC server, which must use
// [rpc.ServerCodec].
func New(opts Options) *Server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.MaxStreams <= 0 {
		opts.MaxStreams = DefaultMaxStreams
	}
	if opts.FirstWait <= 0 {
		opts.FirstWait = DefaultFirstWait
	}
	if opts.ReportMemory <= 0 {
		opts.ReportMemory = DefaultReportMemory
	}
	switch {
	case opts.ReportBurst == 0:
		opts.ReportBurst = defaultBurst
	case opts.ReportBurst < 0:
		opts.ReportBurst = math.MaxInt
	}
	s := &Server{
		opts:    opts,
		log:     opts.Log,
		metrics: newMetrics(opts.Registerer),
		budget:  newReportBudget(opts.ReportMemory, opts.Messages),
		joining: make(chan struct{}, joinedAtOnce),
		stopped: make(chan struct{}),
	}
	s.want.Store(&asked{settings: s.settings(), changed: make(chan struct{})})
	return s
}

// Stop ends all streams, with a status that makes clients come back later.
// Streams that come after it are refused.
func (s *Server) Stop() { s.stop.Do(func() { close(s.stopped) }) }

// Refresh reads the interval and the services again, and tells clients if they
// have changed. Collect does it too.
func (s *Server) Refresh() {
	// The options are asked without the lock on the streams, one at a time, so
	// that an older answer never replaces a newer one.
	s.asking.Lock()
	defer s.asking.Unlock()
	next, before := s.settings(), s.wanted()
	if !next.equal(before.settings) {
		s.want.Store(&asked{settings: next, changed: make(chan struct{})})
		close(before.changed)
	}
}

// Open returns how many streams are open.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// asked is the settings in force and a channel that closes when they change.
type asked struct {
	*settings

	changed chan struct{}
}

func (s *Server) wanted() *asked { return s.want.Load() }

func (s *Server) settings() *settings {
	out := &settings{interval: DefaultInterval, granularity: s.opts.EndpointGranularity, all: s.opts.Services == nil}
	if s.opts.Interval != nil {
		out.interval = max(MinInterval, s.opts.Interval())
	}
	if out.all {
		return out
	}
	out.services = slices.Compact(slices.Sorted(slices.Values(s.opts.Services())))
	out.known = make(map[string]string, len(out.services))
	for _, name := range out.services {
		out.known[name] = name
	}
	return out
}

// Collect returns the windows of all streams since the last call, in order of the streams. A
// stream that has closed since then comes once more, with Closed set. The windows belong to the
// caller until it calls Release or Collect, after which their memory is used again.
func (s *Server) Collect(time.Time) []load.StreamWindow {
	s.Refresh()
	s.Release()
	s.budget.collected() // first: reports that arrive during the collection belong to the next one
	if s.budget.large() {
		s.buffers.forget()
	}
	bufs := s.buffers.list()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Grow(s.handed[:0], len(s.streams)+len(s.ended))
	for _, st := range s.streams {
		var w load.StreamWindow
		w, bufs = st.collect(bufs)
		out = append(out, w)
	}
	s.buffers.lend(bufs)
	out = append(out, s.ended...)
	s.ended = nil
	clear(out[len(out):cap(out)])
	s.handed = out
	slices.SortFunc(out, func(a, b load.StreamWindow) int { return cmp.Compare(a.Stream, b.Stream) })
	return out
}

// Release says that the windows of the last Collect are no longer needed. Their memory counts, and
// is not used again, until then.
func (s *Server) Release() {
	s.mu.Lock()
	clear(s.handed)
	s.mu.Unlock()
	s.buffers.release(!s.budget.large())
	s.budget.released()
}

// Client describes an open stream.
type Client struct {
	Stream     load.StreamID
	API        rpc.APIVersion // that it speaks
	Node       load.Node
	UserAgent  string    // name and version
	Address    string    // of the peer
	Since      time.Time // when the stream opened
	LastReport time.Time // zero before the first
	Reports    uint64
	Rejected   uint64 // entries that were left out
	LastReason string // of the newest rejection
	Excess     uint64 // reports that were ignored because they came far too often
	LastExcess time.Time
	Interval   time.Duration
}

// Clients lists the open streams, in order of their opening.
func (s *Server) Clients() []Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Client, 0, len(s.streams))
	for _, st := range s.streams {
		out = append(out, st.client())
	}
	return out
}

// Unknown returns the names of clusters in load reports of the last five minutes
// that are no services, sorted, at most 100: a name that is misspelt somewhere,
// or a cluster that another control plane manages. Envoys report their
// management cluster, too; Options.ManagementCluster leaves it out.
func (s *Server) Unknown() []string { return s.unknown.list(time.Now()) }

// Streams returns how many streams are open, and how many may be.
func (s *Server) Streams() (open, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams), s.opts.MaxStreams
}

// ReportMemory returns the size of the reports in memory, or of those that were collected last if
// that is more, and its limit, in bytes; and the same of the address without certificate that
// uses most.
func (s *Server) ReportMemory() (used, most, fullest, mostOfOne int64) {
	all, of := s.budget.use()
	return int64(all), int64(s.budget.most), int64(of), int64(s.budget.mostOfOne)
}

// streamName is the one method of load reporting, in every API version.
const streamName = "StreamLoadStats"

// Register makes r serve load reporting as v3 and as v2; the messages of both
// are the same on the wire. The 2017 API version has no service of its own, see
// [Server.Stream2017].
func (s *Server) Register(r grpc.ServiceRegistrar) {
	for _, d := range []struct {
		service grpc.ServiceDesc
		api     rpc.APIVersion
	}{
		{loadstatsv3.LoadReportingService_ServiceDesc, rpc.V3},
		{loadstatsv2.LoadReportingService_ServiceDesc, rpc.V2},
	} {
		d.service.HandlerType = (*any)(nil)
		d.service.Streams = []grpc.StreamDesc{s.method(d.api)}
		r.RegisterService(&d.service, s)
	}
}

// Stream2017 is load reporting as it was in 2017: a method of
// envoy.api.v2.EndpointDiscoveryService, so the caller that registers that service has to add it.
// It takes any server with which the service is registered.
func (s *Server) Stream2017() grpc.StreamDesc { return s.method(rpc.V2017) }

func (s *Server) method(api rpc.APIVersion) grpc.StreamDesc {
	return grpc.StreamDesc{
		StreamName: streamName, ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, g grpc.ServerStream) error { return s.stream(g, api) },
	}
}

// stream serves one stream: one goroutine reads and adds to the window, this one answers and
// watches for changes of the settings.
func (s *Server) stream(g grpc.ServerStream, api rpc.APIVersion) error {
	st := &stream{server: s, grpc: g, api: api, peer: rpc.PeerAddress(g.Context()), opened: time.Now(), denied: make(chan error, 1)}
	st.window.Opened = st.opened
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- st.guarded(func() error { return st.read(ready) }) }() // ends with the handler: Recv fails then
	err := st.serve(ready, ended)
	s.leave(st, time.Now())
	return err
}

// enter takes a stream in that has named its node; the errors are statuses.
func (s *Server) enter(st *stream) error {
	before := s.reauthorizations.Load()
	if err := s.welcome(st); err != nil {
		return err
	}
	if !s.admit(st) {
		return s.refuse(refusedFull, codes.ResourceExhausted, "too many load reporting streams")
	}
	if s.reauthorizations.Load() != before { // that one may have missed this stream
		return s.welcome(st)
	}
	return nil
}

// admit enters a stream whose first message was good.
func (s *Server) admit(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.left || len(s.streams) >= s.opts.MaxStreams {
		return false
	}
	s.lastID++
	st.window.Stream = s.lastID
	s.streams = append(s.streams, st)
	s.metrics.streams.Set(float64(len(s.streams)))
	return true
}

// Reauthorize calls Options.Admit again for every open stream, and ends those that it refuses by
// now with its error. Call it after the rules behind Admit have changed: a stream that is being
// admitted meanwhile is checked once more, too.
func (s *Server) Reauthorize() {
	s.reauthorizations.Add(1)
	s.mu.Lock()
	open := slices.Clone(s.streams)
	s.mu.Unlock()
	for _, st := range open {
		err := s.welcome(st)
		if err == nil {
			continue
		}
		select {
		case st.denied <- err:
		default: // it is ending already
		}
	}
}

// welcome asks whether a stream may have its identity and locality. No lock is held.
func (s *Server) welcome(st *stream) error {
	if s.opts.Admit == nil {
		return nil
	}
	err := s.opts.Admit(st.grpc.Context(), st.node)
	if err != nil {
		s.metrics.refused.WithLabelValues(refusedDenied).Inc()
	}
	return err
}

// refuse counts and logs why a stream is ended, and makes its status.
func (s *Server) refuse(reason string, code codes.Code, text string) error {
	s.metrics.refused.WithLabelValues(reason).Inc()
	if skipped, ok := s.limit.Allow(time.Now()); ok && reason != refusedStopped {
		s.log.Warn("a load reporting stream was ended", "reason", reason, "text", text, "skipped_lines", skipped)
	}
	return status.Error(code, text)
}

// leave takes a closed stream out and keeps its last window for Collect. A
// collector that stands still costs the oldest of them, not memory.
func (s *Server) leave(st *stream, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.left = true
	id := st.window.Stream
	at, found := slices.BinarySearchFunc(s.streams, id, func(x *stream, id load.StreamID) int { return cmp.Compare(x.window.Stream, id) })
	if !found { // it never was let in
		return
	}
	s.streams = slices.Delete(s.streams, at, at+1)
	s.metrics.streams.Set(float64(len(s.streams)))
	w := st.close(now)
	if len(s.ended) >= s.opts.MaxStreams {
		s.ended = slices.Delete(s.ended, 0, 1)
		s.metrics.lost.Inc()
	}
	s.ended = append(s.ended, w)
}
