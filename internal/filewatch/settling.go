package filewatch

import (
	"crypto/sha256"
	"time"
)

// Settling tells when a file that is written in parts is whole: once its content has not
// changed for some time. Notices do not tell that, as there are none on some file
// systems and the writer may pause. The zero value is ready.
type Settling struct {
	seen   [sha256.Size]byte // content at the last look
	since  time.Time         // when that was seen first
	moving time.Time         // when the first content was seen that did not stay; zero = it is at rest
}

// Rest takes note of the sum of the content that a look at now found. It returns for how
// long that must stay the same before it counts, 0 = it counts, and since when the content
// has been changing.
func (s *Settling) Rest(sum [sha256.Size]byte, now time.Time, settle time.Duration) (wait, changing time.Duration) {
	if s.since.IsZero() || sum != s.seen {
		s.seen, s.since = sum, now
	}
	if s.moving.IsZero() {
		s.moving = now
	}
	wait = max(0, settle-now.Sub(s.since))
	changing = now.Sub(s.moving)
	if wait == 0 {
		s.moving = time.Time{}
	}
	return wait, changing
}

// Done records that the present content of the file is in force: the next change starts again.
func (s *Settling) Done() { *s = Settling{} }
