package xds

import (
	"maps"
	"slices"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// Readmit asks Options.Admit again about every open stream, and ends those that it
// refuses by now with its error. It is to be called after what Admit goes by has
// changed: a stream that is on its way in meanwhile is asked about once more,
// too. Those that poll are asked at each poll.
func (s *Server) Readmit() {
	s.readmissions.Add(1)
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

// named gives the node of a stream that has told it, and has not ended.
func (s *stream) named() (rpc.Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.zone != nil && !s.closed
}
