package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// How a server stops.
const (
	// stopShards is into how many parts the connections are divided, each of
	// which can be told to go away on its own: grpc-go sends GOAWAY to all
	// connections of a server or to none.
	stopShards = 50
	// stopPatience is how long streams may take to end when all end at once.
	stopPatience = 5 * time.Second
	// goAwayPatience is how long the connections of a part may go on after
	// their GOAWAY. Discovery streams never end by themselves: clients open new
	// ones elsewhere when these are gone.
	goAwayPatience = time.Second
)

// Services is what gRPC servers serve, and how it stops.
type Services interface {
	// Register adds the services, or those of 2017 alone.
	Register(s *grpc.Server, only2017 bool)
	// Left is closed when clients may be sent away.
	Left() <-chan struct{}
	// WaitAcknowledged waits, for a bounded time, until clients have accepted the last plan.
	WaitAcknowledged()
	// Spread is over what time to send clients away; 0 = all at once.
	Spread() time.Duration
	// Stop ends all streams that are left.
	Stop()
}

// Tracker gets the open connections of clients.
type Tracker interface {
	Add(conn net.Conn)
	Remove(conn net.Conn)
}

// Servers are the gRPC servers of the listeners.
type Servers struct {
	services  Services
	log       *slog.Logger
	listeners []net.Listener
	shards    []shard
}

// Names lists the services.
func (s *Servers) Names() []string {
	return slices.Sorted(maps.Keys(s.shards[0].server.GetServiceInfo()))
}

// Close ends servers that have not served.
func (s *Servers) Close() {
	if s == nil {
		return
	}
	for _, p := range s.shards {
		p.server.Stop()
	}
}

// shard is a share of the connections of a listener, with a gRPC server of its
// own.
type shard struct {
	server   *grpc.Server
	listener *counted
}

// Serve serves until ctx ends, then sends the clients away and, where a
// peer does not let go, ends the connections. The parts take turns in accepting
// connections from one listener.
func (s *Servers) Serve(ctx context.Context) error {
	served := make(chan error, len(s.shards))
	for _, p := range s.shards {
		go func() { served <- p.server.Serve(p.listener) }()
	}
	var failed error
	left := len(s.shards)
	select {
	case err := <-served:
		failed = fmt.Errorf("xds listener: %w", err)
		left--
	case <-ctx.Done():
		<-s.services.Left()
		// A client that was sent away, and comes again, is better served elsewhere.
		for _, l := range s.listeners {
			if err := l.Close(); err != nil {
				s.log.Warn("could not close the xDS listener", "error", err)
			}
		}
		s.services.WaitAcknowledged()
		if spread := s.services.Spread(); spread > 0 {
			s.sendAway(spread)
		}
	}
	s.endAll()
	for range left {
		if err := <-served; err != nil && failed == nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
			s.log.Warn("the xDS listener ended with an error", "error", err)
		}
	}
	return failed
}

// sendAway ends the parts one after the other, in random order, spread over the
// configured time as far as they have connections. A fleet that came back all
// at once would meet the next server as a herd.
func (s *Servers) sendAway(spread time.Duration) {
	s.log.Info("closing client connections", "over", spread.String())
	step := time.NewTicker(max(spread/time.Duration(len(s.shards)), time.Millisecond))
	defer step.Stop()
	var ending sync.WaitGroup
	for _, i := range rand.Perm(len(s.shards)) { //nolint:gosec // no secret
		if s.shards[i].listener.open.Load() == 0 {
			continue
		}
		ending.Go(func() { end(s.shards[i].server, goAwayPatience) })
		<-step.C
	}
	ending.Wait()
}

// endAll ends all streams and connections that are left.
func (s *Servers) endAll() {
	s.services.Stop()
	var ending sync.WaitGroup
	for _, p := range s.shards {
		ending.Go(func() { end(p.server, stopPatience) })
	}
	ending.Wait()
}

// end stops a part: GOAWAY first, then, where streams don't end by themselves,
// their connections. It returns when all handlers have.
func end(shard *grpc.Server, patience time.Duration) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		shard.GracefulStop()
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		shard.Stop()
		<-stopped
	}
}

// counted is the listener of one part: it counts the open connections that it
// accepted, and accepts one when it is its turn. Left to themselves, the part
// that has accepted last is the first to accept again, so that a herd of clients
// would end up in a few parts, and would be sent away as a herd.
type counted struct {
	net.Listener

	turn, next chan struct{} // the one token of all parts; capacity 1
	closed     chan struct{}
	close      sync.Once
	open       atomic.Int64
	track      Tracker // nil = they are only counted
}

// takeTurns makes n listeners of one.
func takeTurns(l net.Listener, n int) []*counted {
	turns := make([]chan struct{}, n)
	for i := range turns {
		turns[i] = make(chan struct{}, 1)
	}
	turns[0] <- struct{}{}
	out := make([]*counted, n)
	for i := range out {
		out[i] = &counted{Listener: l, turn: turns[i], next: turns[(i+1)%n], closed: make(chan struct{})}
	}
	return out
}

// Accept implements [net.Listener].
func (l *counted) Accept() (net.Conn, error) {
	select {
	case <-l.turn:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	l.next <- struct{}{} // which does not block: it is the only one
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	if l.track == nil {
		return &countedConn{Conn: c, closed: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
	}
	l.track.Add(c)
	return &countedConn{Conn: c, closed: sync.OnceFunc(func() {
		l.open.Add(-1)
		l.track.Remove(c)
	})}, nil
}

// Close implements [net.Listener].
func (l *counted) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type countedConn struct {
	net.Conn

	closed func()
}

// Beneath implements [admission.Around].
func (c *countedConn) Beneath() net.Conn { return c.Conn }

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
