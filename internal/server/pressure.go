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
// and of that for the names of one address without certificate.
func (s *Server) pressure() float64 {
	use := s.gate.Use()
	used, most := s.xds.AccountMemory()
	return max(float64(use.Messages)/float64(max(1, use.MostMessages)), float64(used)/float64(max(1, most)))
}
