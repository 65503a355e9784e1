package xds

import (
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// sotwRequest receives a state-of-the-world request. Nearly all of them accept
// the last response and list the names that the request before listed, in this
// order or another: those are handled from their bytes, and nothing is decoded.
type sotwRequest struct {
	stream  *stream
	pending bool  // there is something to send now
	refused error // ends the stream
}

// ReadMessage implements rpc.Reader.
func (r *sotwRequest) ReadMessage(encoded []byte) error {
	handled, pending := r.stream.acceptEncoded(encoded)
	if handled {
		r.pending = pending
		return nil
	}
	// All others take deep calls, and a stack that has grown for them would
	// stay: they get one of their own, which is given back.
	var malformed error
	s := r.stream.server
	s.handling <- struct{}{}
	done := make(chan struct{})
	go func() {
		defer func() {
			<-s.handling
			close(done)
		}()
		r.refused = r.stream.guarded(func() error {
			m := &discoveryv3.DiscoveryRequest{}
			if malformed = rpc.Decode(encoded, m); malformed == nil {
				return r.stream.decoded(m)
			}
			return nil
		})
	}()
	<-done
	return malformed
}

// acceptEncoded handles a request that only accepts the last response, with the
// names of the request before; pending tells whether there is something to send
// now. All other requests are not handled, and nothing is done.
func (s *stream) acceptEncoded(request []byte) (handled, pending bool) {
	version, rest, ok := resource.AckHead(request)
	if !ok {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.acceptedBy(version, rest)
	if w == nil || s.closed {
		return false, false
	}
	s.server.metrics.requests[w.kind].Inc()
	s.answered(w, nil, time.Now())
	s.recount()
	return true, s.pending()
}

// acceptedBy finds the watch whose last response a request accepts, from its
// bytes after version and node; nil when it does anything else.
func (s *stream) acceptedBy(version, rest []byte) *watch {
	for _, w := range s.watches {
		if !w.unacked || w.list == nil || len(rest) < len(w.list.raw) || string(rest[:len(w.list.raw)]) != w.list.raw {
			continue
		}
		url, nonce, ok := resource.AckTail(rest[len(w.list.raw):])
		if ok && w.accepted(version, url, nonce) {
			return w
		}
	}
	listed, tail := sumNames(rest) // the order may be another
	url, nonce, ok := resource.AckTail(tail)
	if !ok {
		return nil
	}
	for _, w := range s.watches {
		if w.unacked && w.list != nil && w.list.listed == listed && w.accepted(version, url, nonce) {
			return w
		}
	}
	return nil
}

// accepted tells whether a request accepts the last response of the watch.
func (w *watch) accepted(version, url, nonce []byte) bool {
	return string(url) == w.url && w.nonce.is(nonce) && (w.as.Form != rpc.V2017 || string(version) == w.sent.version)
}
