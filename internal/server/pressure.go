package server

import (
	"context"
	"time"
)

// Parts of their budgets from which on what clients send counts as pressure on memory,
// and below which it no longer does.
const (
	pressureFrom  = 0.5
	pressureUntil = 0.25
	pressureEvery = 100 * time.Millisecond
)

// followPressure tells Options.Pressure, until ctx ends, while clients make the server use
// much of the memory that they may make it use, and when they no longer do.
func (s *Server) followPressure(ctx context.Context) {
	if s.opts.Pressure == nil {
		return
	}
	ticker := time.NewTicker(pressureEvery)
	defer ticker.Stop()
	told := false
	for {
		select {
		case <-ctx.Done():
			if told {
				s.opts.Pressure(false)
			}
			return
		case <-ticker.C:
		}
		used := s.pressure()
		on := used >= pressureFrom || told && used >= pressureUntil
		if on || told {
			s.opts.Pressure(on)
		}
		told = on
	}
}

// pressure returns the largest part that is used of a budget: of the memory for messages,
// of that for the names of one address without certificate, and of that for clients that poll.
func (s *Server) pressure() (part float64) {
	messages := func() (used, most int64) {
		use := s.gate.Use()
		return use.Messages, use.MostMessages
	}
	for _, budget := range []func() (used, most int64){messages, s.xds.AccountMemory, s.xds.PollMemory} {
		used, most := budget()
		part = max(part, float64(used)/float64(max(1, most)))
	}
	return part
}
