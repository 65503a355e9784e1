package admission

import "sync/atomic"

// Files divides the files that the process may have open, RLIMIT_NOFILE, so that
// no flood of connections keeps operators out, or the state from being written.
type Files struct {
	Limit   int // of the process; 0 = unknown or so large that it bounds nothing
	Clients int // connections of clients, all listeners together
	Admin   int // connections of operators
}

const (
	// leastReserve files are kept for state, configuration, certificates,
	// recordings, connections to others and what the runtime needs.
	leastReserve, mostReserve = 64, 1_024
	leastAdmin                = 16
)

// DivideFiles keeps an eighth of the files in reserve (64 to 1,024), and up to an
// eighth for the connections of operators, of which there are mostAdmin at most.
func DivideFiles(limit, mostAdmin int) Files {
	reserve := min(max(limit/8, leastReserve), mostReserve)
	admin := min(max(limit/8, leastAdmin), mostAdmin)
	return Files{Limit: limit, Admin: admin, Clients: max(1, limit-reserve-admin)}
}

// Pool bounds the connections of several listeners together.
type Pool struct {
	most int64
	open atomic.Int64
}

// NewPool makes a pool of so many connections.
func NewPool(most int) *Pool { return &Pool{most: int64(most)} }

// Open returns how many of the connections are open, and how many may be.
func (p *Pool) Open() (open, most int) { return int(p.open.Load()), int(p.most) }

// take reports whether there was room for one more connection. A nil pool has no bound.
func (p *Pool) take() bool {
	if p == nil {
		return true
	}
	if p.open.Add(1) > p.most {
		p.open.Add(-1)
		return false
	}
	return true
}

func (p *Pool) release() {
	if p != nil {
		p.open.Add(-1)
	}
}
