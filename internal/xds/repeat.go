package xds

import (
	"time"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// repeatPause is the least time between two answers to a client that subscribes
// in its answers, again and again, to what it has been sent. It is obeyed, since
// it may have forgotten in between; but a client that names in each answer all
// that it wants, as contour's command line does, would else be sent the same as
// fast as the network goes, also what it refuses.
const repeatPause = time.Second

// asksAgain tells whether a delta request, in answering a response, subscribes
// to something that is subscribed and was sent.
func (s *stream) asksAgain(r *resource.DeltaRequest) bool {
	if r.Nonce == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		if w.url != r.TypeURL {
			continue
		}
		for _, name := range r.Subscribe {
			if x := w.subs[name]; x != nil && x.named && !x.due {
				return true
			}
			if name == resource.Wildcard && w.wildcard {
				return true
			}
		}
	}
	return false
}

// slowDown takes a request as an answer, and waits until what it subscribes to,
// which is all that it leaves of it, may be sent again. Nothing is received from
// the client meanwhile: its stream alone waits. Called by the receiver only.
func (s *stream) slowDown(r *resource.DeltaRequest) error {
	answer := *r
	answer.Subscribe, answer.Unsubscribe = nil, nil
	if err := s.deltaRequest(&answer); err != nil {
		return err
	}
	s.kick()
	r.Nonce, r.Nack, r.Error = "", false, ""
	timer := time.NewTimer(time.Until(s.repeated.Add(repeatPause)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.server.stop:
		return errStopped
	case <-s.raw.Context().Done():
		return s.raw.Context().Err()
	}
	s.repeated = time.Now()
	return nil
}
