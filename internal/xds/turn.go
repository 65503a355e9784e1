package xds

// What may be decoded and handled at once, of requests that do more than to accept a
// response. A decoded request and the stack that has grown for it take many times the
// size of its message, and thousands of streams may ask at the same moment; those that
// wait hold only the message, which counts as unread meanwhile.
const (
	leastAtOnce    = 16
	requestsPerCPU = 4
)

// inTurn calls f, which must not wait for clients or for time, when there is room for one
// more request.
func (s *Server) inTurn(f func() error) error {
	s.handling <- struct{}{}
	defer func() { <-s.handling }()
	return f()
}

// outOfTurn calls f, which may wait, from within inTurn, and lets another request go first.
func (s *Server) outOfTurn(f func() error) error {
	<-s.handling
	defer func() { s.handling <- struct{}{} }()
	return f()
}
