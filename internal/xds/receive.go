package xds

import (
	"context"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// receive handles requests until the client or an error ends the stream.
func (s *stream) receive() error {
	for {
		var err error
		if s.delta {
			err = s.receiveDelta()
		} else {
			err = s.receiveSotW()
		}
		if err != nil {
			return err
		}
	}
}

func (s *stream) receiveSotW() error {
	m := &s.ack
	*m = sotwRequest{stream: s}
	if err := s.direct.RecvMsg(m); err != nil {
		return err
	}
	if m.pending {
		s.offer(time.Now())
	}
	return m.refused
}

// decoded handles a state-of-the-world request that had to be decoded.
func (s *stream) decoded(m *discoveryv3.DiscoveryRequest) error {
	r, err := resource.RequestFrom(m, s.only, s.server.options.Limits)
	if err != nil {
		return err
	}
	if err := s.identify(&r.Head); err != nil {
		return err
	}
	if err := s.await(s.raw.Context(), &r.Head, r.Version); err != nil {
		return err
	}
	if err := s.request(&r); err != nil {
		return err
	}
	s.offer(time.Now())
	return nil
}

func (s *stream) receiveDelta() error {
	m := &discoveryv3.DeltaDiscoveryRequest{}
	if err := s.raw.RecvMsg(m); err != nil {
		return err
	}
	r, err := resource.DeltaRequestFrom(m, s.only, s.server.options.Limits)
	if err != nil {
		return err
	}
	if err := s.server.inTurn(func() error { return s.identify(&r.Head) }); err != nil {
		return err
	}
	if s.asksAgain(&r) {
		if err := s.slowDown(&r); err != nil {
			return err
		}
	}
	if err := s.server.inTurn(func() error { return s.deltaRequest(&r) }); err != nil {
		return err
	}
	s.offer(time.Now())
	return nil
}

// identify takes the node from the first message, and from no other, and makes
// the stream follow its locality. It is called in turn.
func (s *stream) identify(h *resource.Head) error {
	s.server.metrics.requests[h.Kind].Inc()
	s.spoke.Store(true)
	if s.zone != nil { // written by this goroutine only
		return nil
	}
	node, err := rpc.NodeFrom(h.Node)
	if err != nil {
		return err
	}
	before := s.server.readmissions.Load()
	if err := s.server.welcome(s, node); err != nil {
		return err
	}
	if s.server.published.Load() == nil {
		if err := s.server.outOfTurn(func() error { return s.server.ready(s.raw.Context()) }); err != nil {
			return err
		}
	}
	if err := s.takePart(node); err != nil {
		return err
	}
	if s.server.readmissions.Load() != before { // that one may have missed this stream
		return s.server.welcome(s, node)
	}
	return nil
}

// takePart has the stream take part in the zone of its node.
func (s *stream) takePart(node rpc.Node) error {
	z, err := s.server.join(node.Locality)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // by the handler, meanwhile
		s.server.leave(z)
		return errStopped
	}
	s.node, s.zone = node, z
	s.server.met(s)
	if is := s.server.options.Is2017; is != nil && s.form == rpc.V2 && is(node) {
		s.form = rpc.V2017
	}
	s.view = z.add(s)
	return nil
}

// ready waits for the first publication, for a bounded time: to be refused is
// better for a client than to wait without end.
func (s *Server) ready(ctx context.Context) error {
	select {
	case <-s.first:
		return nil
	default:
	}
	timer := time.NewTimer(s.options.FirstPlanWait)
	defer timer.Stop()
	select {
	case <-s.first:
		return nil
	case <-timer.C:
		return errNothing
	case <-s.stop:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}
