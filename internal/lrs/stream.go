package lrs

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// maxReports is how many reports of a stream wait for the collector apart from
// each other.
const maxReports = 4

// stream is one client.
type stream struct {
	server *Server
	grpc   grpc.ServerStream
	api    rpc.APIVersion
	node   rpc.Node
	once   bool   // it reads one configuration only
	peer   string // address
	opened time.Time
	left   bool        // the handler has returned; guarded by the server's lock
	denied chan error  // capacity 1: it is not welcome any more
	spoke  atomic.Bool // a message came; it may wait for its turn

	mu       sync.Mutex          // guards the fields below; window.Stream is written before the stream is shared
	window   load.StreamWindow   //
	buffers  [maxReports]*buffer // of the window's reports
	last     time.Time           // arrival of the newest report
	reports  uint64
	rejected uint64
	excess   uint64 // reports that were ignored
	exceeded time.Time
	reason   string
	interval time.Duration // as told
	clock    clock         // of a client that does not report its interval
	pace     rpc.Pace
}

// grpcGo is the user agent that reads only the first response of a stream.
const grpcGo = "grpc go"

// serve waits for the events of the stream.
func (st *stream) serve(ready <-chan struct{}, ended <-chan error) error {
	s := st.server
	silent := time.NewTimer(s.opts.FirstWait)
	defer silent.Stop()
	t := configurer{stream: st}
	for {
		var err error
		select {
		case err := <-ended:
			return err
		case err := <-st.denied:
			return err
		case <-s.stopped:
			return s.refuse(refusedStopped, codes.Unavailable, "the server is going away")
		case <-silent.C:
			if st.spoke.Load() {
				continue
			}
			return s.refuse(refusedSilent, codes.DeadlineExceeded, "no first message within "+s.opts.FirstWait.String())
		case <-ready:
			ready = nil
			silent.Stop()
			err = t.look()
		case <-t.changed:
			err = t.look()
		case <-t.farewell:
			s.metrics.responses.WithLabelValues(sentClosed).Inc()
			return status.Error(codes.Unavailable, "the services to report on have changed: open a new stream")
		}
		if err != nil {
			return err
		}
	}
}

// guarded calls f, with a panic as an error: outside of the handler nothing else would stop it
// from ending the process.
func (st *stream) guarded(f func() error) (err error) {
	defer st.server.panics.Recovered(&err, st.server.log)
	return f()
}

// apart calls f, guarded, where its stack goes with it: one that has grown for
// calls as deep as come once in the life of a stream would stay with the stream,
// which spends its life waiting.
func (st *stream) apart(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- st.guarded(f) }()
	return <-done
}

// read takes messages until the stream ends. The first one names the node and
// may hold statistics already; ready is closed after it. Reports are read from
// their bytes, within the receiving of them.
func (st *stream) read(ready chan<- struct{}) error {
	m := &message{stream: st, ready: ready}
	for {
		if err := st.grpc.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if m.late != nil {
			late := m.late
			m.late = nil
			if err := st.apart(func() error { return m.enterLate(late) }); err != nil {
				return err
			}
		}
		if m.refused != nil {
			return m.refused
		}
		if m.excessive {
			m.excessive = false
			st.pause()
		}
	}
}

// message receives the messages of a stream, one after the other.
type message struct {
	stream  *stream
	ready   chan<- struct{} // nil after the first message
	refused error           // ends the stream
	late    *late           // the first message, whose client has to be placed

	excessive bool // the message was ignored: there are too many
	joined    bool // it came in pieces and was joined in turn
}

// joinedAtOnce is how many messages that came in pieces are joined and read at once. The copies
// of all others would take as much memory again as gRPC's pieces.
const joinedAtOnce = 16

// Size implements rpc.Sizer.
func (m *message) Size(bytes int) { rpc.Waits(rpc.UnreadOf(m.stream.grpc.Context()), bytes) }

// Wait implements rpc.Waiter.
func (m *message) Wait() error {
	m.stream.spoke.Store(true)
	ctx := m.stream.grpc.Context()
	select {
	case m.stream.server.joining <- struct{}{}:
		m.joined = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// giveBack lets another message be joined.
func (m *message) giveBack() {
	if m.joined {
		m.joined = false
		<-m.stream.server.joining
	}
}

// Skips implements rpc.Skipper: the node counts in the first message only.
func (m *message) Skips() protowire.Number {
	if m.ready != nil {
		return 0
	}
	return reader.ReportNode
}

// ReadMessage implements rpc.Reader.
func (m *message) ReadMessage(encoded []byte) error {
	defer m.giveBack()
	st := m.stream
	now := time.Now()
	if m.ready != nil {
		statistics, err := false, error(nil)
		if broken := st.apart(func() error {
			statistics, err = m.greet(encoded)
			return nil
		}); broken != nil {
			m.refused = broken
		}
		if err != nil || m.refused != nil || m.late != nil || !statistics {
			return err
		}
	}
	m.count(encoded, now)
	return nil
}

// count reads the statistics of a message, unless there are too many messages.
func (m *message) count(encoded []byte, now time.Time) {
	if m.excessive = m.stream.excessive(now); m.excessive {
		return
	}
	if err := m.stream.report(encoded, now); err != nil {
		m.refused = m.stream.server.refuse(refusedMessage, codes.InvalidArgument, err.Error())
	}
}

// nodeField returns the field with the node as it was sent, and whether the message holds
// statistics. Decoded, statistics would take many times their size, so that only the reader reads them.
func nodeField(encoded []byte) (field []byte, statistics bool, err error) {
	c := rpc.Cursor{Rest: encoded}
	for {
		at := len(encoded) - len(c.Rest)
		if !c.Next() {
			break
		}
		number, _ := protowire.DecodeTag(c.Key)
		c.Skip()
		switch {
		case c.Bad:
		case number == reader.ReportNode:
			field = append(field, encoded[at:len(encoded)-len(c.Rest)]...)
		case number == reader.ReportClusters:
			statistics = true
		}
	}
	if c.Bad {
		err = errNoMessage
	}
	return field, statistics, err
}

// greet takes the first message and reports whether it holds statistics.
func (m *message) greet(encoded []byte) (statistics bool, err error) {
	node, statistics, err := nodeField(encoded)
	if err != nil {
		return false, err
	}
	var hello loadstatsv3.LoadStatsRequest
	if err := rpc.Decode(node, &hello); err != nil {
		return false, err
	}
	st := m.stream
	if err := st.introduce(&hello); err != nil {
		m.refused = st.server.refuse(refusedMessage, codes.InvalidArgument, err.Error())
		return false, nil
	}
	if st.server.opts.Place != nil && st.node.Machine != "" {
		m.late = &late{}
		if statistics {
			m.late.statistics = slices.Clone(encoded)
		}
		return false, nil
	}
	m.enter()
	return statistics, nil
}

// enter takes the stream in, or refuses it.
func (m *message) enter() {
	if m.refused = m.stream.server.enter(m.stream); m.refused == nil {
		close(m.ready)
		m.ready = nil
	}
}

// late is the first message of a client that has to be placed, which may take seconds.
// Thousands of clients may wait for that: the message is kept only if it holds
// statistics, and counts as unread then.
type late struct{ statistics []byte }

// enterLate sets the client's locality, and then admits the client and its first report.
func (m *message) enterLate(late *late) error {
	st := m.stream
	ctx := st.grpc.Context()
	rpc.Keeps(ctx, len(late.statistics))
	defer rpc.Keeps(ctx, 0)
	st.server.opts.Place(ctx, st.peer, &st.node)
	st.window.Node = st.node.Node
	if m.enter(); m.refused != nil || late.statistics == nil {
		return nil
	}
	if err := m.Wait(); err != nil {
		return err
	}
	defer m.giveBack()
	m.count(late.statistics, time.Now())
	return nil
}

// introduce reads the node of the first message; later ones don't count.
func (st *stream) introduce(hello *loadstatsv3.LoadStatsRequest) error {
	if hello.GetNode() == nil {
		return errNoNode
	}
	n, err := rpc.NodeFrom(hello.GetNode())
	if err != nil {
		return err
	}
	st.node = n
	st.window.Node = n.Node
	if account := st.server.opts.Account; account != nil {
		st.window.Account, st.window.Identified = account(st.grpc.Context())
	}
	st.once = strings.EqualFold(hello.GetNode().GetUserAgentName(), grpcGo)
	return nil
}

var errNoMessage = errors.New("not a message")

var errNoNode = errors.New("node: missing, the first message of a stream must carry it")

func (st *stream) client() Client {
	st.mu.Lock()
	defer st.mu.Unlock()
	return Client{
		Stream: st.window.Stream, API: st.api, Node: st.node.Node, UserAgent: st.node.UserAgent, Address: st.peer,
		Since: st.opened, LastReport: st.last, Reports: st.reports,
		Rejected: st.rejected, LastReason: st.reason, Excess: st.excess, LastExcess: st.exceeded, Interval: st.interval,
	}
}

// How often a client may report, in the long run and at once. Real ones report once in an
// interval and when they stop; reports that waited while a connection hung come at once, and so
// do those that wait for a server that stood still.
const (
	reportsPerInterval = 4
	defaultBurst       = 64

	// A client beyond its pace is read slowly, so that its transport fills up and it has to wait:
	// 64 times in an interval, or every second where that is more often. Then ignored reports
	// cost next to nothing.
	pausesPerInterval = 64
	maxPause          = time.Second
)

// excessive reports whether a report exceeds the allowed pace of the client, so that it is to be
// ignored. That is counted, and logged when it begins.
func (st *stream) excessive(now time.Time) bool {
	s := st.server
	if s.opts.ReportBurst == math.MaxInt {
		return false
	}
	st.mu.Lock()
	interval := st.asks()
	each := interval / reportsPerInterval
	ok := st.pace.Wait(now, each, s.opts.ReportBurst) == 0
	if ok {
		st.pace.Take(each)
	} else {
		st.excess++
		st.exceeded = now
	}
	st.mu.Unlock()
	if ok {
		return false
	}
	s.metrics.excess.Inc()
	if skipped, ok := s.limit.Allow(now); ok {
		s.log.Warn("a client reports load far more often than requested; ignoring the excess", "node", st.node.ID,
			"locality", st.node.Locality.String(), "peer", st.peer, "interval", interval, "skipped_lines", skipped)
	}
	return true
}

// asks returns the interval that the client was told, or will be; the caller
// holds the lock.
func (st *stream) asks() time.Duration {
	if st.interval > 0 {
		return st.interval
	}
	return st.server.wanted().interval
}

// pause waits before more is read of a client beyond its pace.
func (st *stream) pause() {
	st.mu.Lock()
	d := min(maxPause, st.asks()/pausesPerInterval)
	st.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-st.grpc.Context().Done():
	}
}
