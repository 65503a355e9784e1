package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// How a server stops.
const (
	// stopParts is into how many parts the connections are divided, each of
	// which can be told to go away on its own: grpc-go sends GOAWAY to all
	// connections of a server or to none.
	stopParts = 50
	// stopPatience is how long streams may take to end when all end at once.
	stopPatience = 5 * time.Second
	// goAwayPatience is how long the connections of a part may go on after
	// their GOAWAY. Discovery streams never end by themselves: clients open new
	// ones elsewhere when these are gone.
	goAwayPatience = time.Second
	// lastPlanPatience is how long to wait until clients have accepted that
	// they are to drop nothing.
	lastPlanPatience = time.Second
)

// part is a share of the connections of a listener, with a gRPC server of its
// own.
type part struct {
	server   *grpc.Server
	listener *counted
}

// newParts builds the gRPC server of each listener: as many as are to be stopped
// one by one.
func (s *Server) newParts() []part {
	var parts []part
	for _, l := range s.listeners.grpc() {
		for _, turn := range takeTurns(l, stopParts) {
			turn.track = s.replicas.tracked()
			parts = append(parts, part{s.newGRPC(l == s.listeners.XDS2017), turn})
		}
	}
	return parts
}

// serveGRPC serves until ctx ends, then sends the clients away and, where a
// peer does not let go, ends the connections. The parts take turns in accepting
// connections from one listener.
func (s *Server) serveGRPC(ctx context.Context) error {
	served := make(chan error, len(s.parts))
	for _, p := range s.parts {
		go func() { served <- p.server.Serve(p.listener) }()
	}
	var failed error
	left := len(s.parts)
	select {
	case err := <-served:
		failed = fmt.Errorf("xds listener: %w", err)
		left--
	case <-ctx.Done():
		<-s.loop.Left()
		// Who is sent away, and who comes anew, is better served elsewhere.
		for _, l := range s.listeners.grpc() {
			if err := l.Close(); err != nil {
				s.log.Warn("closing the xds listener", "error", err)
			}
		}
		s.lastPlanTaken()
		if spread := s.current.Load().StopSpread; spread > 0 {
			s.sendAway(spread)
		}
	}
	s.endAll()
	for range left {
		if err := <-served; err != nil && failed == nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
			s.log.Warn("the xds listener ended with an error", "error", err)
		}
	}
	return failed
}

// stopping tells whether the server is on its way out.
func (s *Server) stopping() bool {
	select {
	case <-s.loop.Left():
		return true
	default:
		return false
	}
}

// lastPlanTaken waits until clients have accepted a last plan without drops, if
// there is one, for a bounded time.
func (s *Server) lastPlanTaken() {
	if !s.loop.Undropped() {
		return
	}
	give := time.NewTimer(lastPlanPatience)
	defer give.Stop()
	look := time.NewTicker(lastPlanPatience / 50)
	defer look.Stop()
	for {
		behind := false
		for _, c := range s.xds.Clients() {
			behind = behind || !c.InSync
		}
		if !behind {
			return
		}
		select {
		case <-look.C:
		case <-give.C:
			return
		}
	}
}

// sendAway ends the parts one after the other, in random order, spread over the
// configured time as far as they have connections. A fleet that came back all
// at once would meet the next server as a herd.
func (s *Server) sendAway(spread time.Duration) {
	s.log.Info("sending clients away", "over", spread.String())
	step := time.NewTicker(max(spread/time.Duration(len(s.parts)), time.Millisecond))
	defer step.Stop()
	var ending sync.WaitGroup
	for _, i := range rand.Perm(len(s.parts)) { //nolint:gosec // no secret
		if s.parts[i].listener.open.Load() == 0 {
			continue
		}
		ending.Go(func() { end(s.parts[i].server, goAwayPatience) })
		<-step.C
	}
	ending.Wait()
}

// endAll ends all streams and connections that are left.
func (s *Server) endAll() {
	s.xds.Stop()
	s.lrs.Stop()
	s.hds.Stop()
	s.csds.Stop()
	var ending sync.WaitGroup
	for _, p := range s.parts {
		ending.Go(func() { end(p.server, stopPatience) })
	}
	ending.Wait()
}

// end stops a part: GOAWAY first, then, where streams don't end by themselves,
// their connections. It returns when all handlers have.
func end(part *grpc.Server, patience time.Duration) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		part.GracefulStop()
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		part.Stop()
		<-stopped
	}
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
