package hds

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/health"
)

const (
	// endsWithin is how soon after a specifier a checker ends that may have ended
	// because of it.
	endsWithin = 10 * time.Second
	// mostEnded bounds what is kept of checkers that ended until it is asked for.
	mostEnded = 1_000
)

// Ended hands over which checkers ended their streams, since the last call, soon
// after they were told of something new and before they reported, in the order
// of time. What they were told may have ended their processes.
func (s *Server) Ended() []health.Ended {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.ended
	s.ended = nil
	return out
}

// ends notes that the peer of a stream ended it.
func (s *Server) ends(c *checker, now time.Time) {
	c.mu.Lock()
	news, told := c.news, c.told
	c.mu.Unlock()
	if told.IsZero() || now.Sub(told) > endsWithin {
		return
	}
	s.metrics.ended.Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) < mostEnded {
		s.ended = append(s.ended, health.Ended{Checker: c.id, Services: news, At: now})
	}
	if skipped, ok := s.limit.Allow(now); ok {
		s.log.Warn("a checker ended when it was told what to probe", "checker", c.id, "new_services", len(news),
			"first", news[0], "skipped_lines", skipped)
	}
	s.signal()
}

// union joins two sorted lists.
func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
