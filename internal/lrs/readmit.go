package lrs

import "slices"

// Readmit asks Options.Admit again about every open stream, and ends those that it
// refuses by now with its error. It is to be called after what Admit goes by has
// changed: a stream that is on its way in meanwhile is asked about once more, too.
func (s *Server) Readmit() {
	s.readmissions.Add(1)
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

// welcome asks whether a stream may be what it says it is. No lock is held.
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
