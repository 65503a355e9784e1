package admission

import (
	"maps"
	"slices"
	"sync"

	"github.com/isobar-xds/isobar"
)

// Kind is the purpose of a stream. Each kind has a quota of its own.
type Kind uint8

// The kinds.
const (
	Discovery Kind = iota
	LoadReports
	HealthChecks // done by checkers
	Operation    // requests of operators
	kinds
)

// Budgets bound how many streams one peer may hold open at once. The state of a peer ends with
// its last stream. They are safe for concurrent use.
type Budgets struct {
	streams    [kinds]int
	localities int

	mu    sync.Mutex
	peers map[string]*account
}

// account counts the open streams of one peer.
type account struct {
	streams    [kinds]int
	localities map[isobar.Locality]int // streams in each
}

// NewBudgets makes budgets of open streams of each kind, of which those of operators have a limit
// of their own, and different localities for each peer.
func NewBudgets(streams, operations, localities int) *Budgets {
	b := &Budgets{localities: localities, peers: map[string]*account{}}
	for k := range b.streams {
		b.streams[k] = streams
	}
	b.streams[Operation] = min(streams, operations)
	return b
}

// Open counts a stream of a peer, or returns the reason why not. A stream that was
// counted must be closed.
func (b *Budgets) Open(peer string, k Kind) (*Stream, Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.peers[peer]
	switch {
	case a == nil:
		a = &account{}
		b.peers[peer] = a
	case a.streams[k] >= b.streams[k]:
		return nil, PeerStreams
	}
	a.streams[k]++
	return &Stream{budgets: b, peer: peer, kind: k}, ""
}

// Stream is one open stream that the budget counts.
type Stream struct {
	budgets *Budgets
	peer    string
	kind    Kind

	locality isobar.Locality // guarded by the budgets' lock
	located  bool
	closed   bool
}

// Locate counts the locality that a stream speaks for, or returns the reason why
// it may not. Only the first one of a stream counts.
func (s *Stream) Locate(l isobar.Locality) Reason {
	b := s.budgets
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.located || s.closed {
		return ""
	}
	a := b.peers[s.peer]
	if a.localities[l] == 0 && len(a.localities) >= b.localities {
		return PeerLocalities
	}
	if a.localities == nil {
		a.localities = map[isobar.Locality]int{}
	}
	a.localities[l]++
	s.locality, s.located = l, true
	return ""
}

// Close counts a stream no longer. It may be called again.
func (s *Stream) Close() {
	b := s.budgets
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	a := b.peers[s.peer]
	if s.located {
		if a.localities[s.locality]--; a.localities[s.locality] == 0 {
			delete(a.localities, s.locality)
		}
	}
	if a.streams[s.kind]--; a.streams == [kinds]int{} {
		delete(b.peers, s.peer)
	}
}

// Use is how much of a budget one peer holds.
type Use struct {
	Peer       string
	Used, Most int
}

// Fullest returns the peer that is nearest to its limit of streams of one kind, and the peer with most localities; zero
// without streams.
func (b *Budgets) Fullest() (streams, localities Use) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, peer := range slices.Sorted(maps.Keys(b.peers)) {
		a := b.peers[peer]
		for k, n := range a.streams {
			if most := b.streams[k]; n*max(1, streams.Most) > streams.Used*most {
				streams = Use{peer, n, most}
			}
		}
		if n := len(a.localities); n > localities.Used {
			localities = Use{peer, n, b.localities}
		}
	}
	return streams, localities
}
