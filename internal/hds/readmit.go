package hds

// Readmit asks Options.Admit again about every open stream, and ends those that it
// refuses by now with its error. It is to be called after what Admit goes by has
// changed: a stream that is on its way in meanwhile is asked about once more,
// too. Those that poll are asked at each request.
func (s *Server) Readmit() {
	s.readmissions.Add(1)
	s.mu.Lock()
	open := make([]*checker, 0, len(s.live))
	for _, c := range s.live { // ending has no order
		if c.stream != nil {
			open = append(open, c)
		}
	}
	s.mu.Unlock()
	for _, c := range open {
		err := s.allowed(c.stream.grpc.Context(), c.hello.Node)
		if err == nil {
			continue
		}
		select {
		case c.stream.denied <- err:
		default: // it is ending already
		}
	}
}
