package xds

import "time"

// subscription is an assignment with those who should have it.
type subscription struct {
	streams int
	mute    int            // of them, those that never said what they have
	current string         // version of what is published; "" = there is none
	acked   map[string]int // streams by the version that they acknowledged last; nil = none did
	ackedAt time.Time      // when enough streams had the current version; zero before
	account *nameAccount   // of the first stream
}

// publish takes note of new content. The same content again changes nothing.
func (s *subscription) publish(version string, now time.Time) {
	if version == s.current {
		return
	}
	s.current, s.ackedAt = version, time.Time{}
	s.settle(now) // some may have it from before
}

// move counts a stream at another version than before.
func (s *subscription) move(from, to string) {
	if from == to {
		return
	}
	if from != "" {
		if s.acked[from]--; s.acked[from] <= 0 {
			delete(s.acked, from)
		}
	}
	if to != "" {
		if s.acked == nil {
			s.acked = map[string]int{}
		}
		s.acked[to]++
	}
}

// settle notes when enough streams have the current content: 95%, of those that
// say what they have. It stays
// noted until the content changes: a stream that joins later begins with the
// current content anyway.
func (s *subscription) settle(now time.Time) {
	speak := s.streams - s.mute
	if s.current == "" || !s.ackedAt.IsZero() || speak == 0 {
		return
	}
	if s.acked[s.current]*100 >= speak*95 {
		s.ackedAt = now
	}
}
