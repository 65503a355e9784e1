package xds

import (
	"fmt"
	"sync/atomic"

	"github.com/isobar-xds/isobar/internal/wire"
)

// What subscriptions of open streams cost, in bytes, estimated. A request of 4
// MiB makes the server remember several times as much, and what many streams ask
// for would else be bounded by their number alone.
const (
	subCost  = 128 // of a name that is on its way to a stream, or that a delta stream subscribes to
	listCost = 64  // of a list of names that streams share, beside its bytes
	headCost = 16  // of a name in a list, beside its bytes
	wantCost = 256 // of an assignment that somebody in a locality subscribes to

	// modestNames is what each stream may always subscribe to: some hundred
	// names. So a few streams with very many of them can't keep others out.
	modestNames = 64 << 10
	// countedNames is how far a stream's cost may be from what all know of it:
	// each push puts names on their way, and each answer takes them off.
	countedNames = 8 << 10
)

// nameBudget is what the names cost that all open streams subscribe to.
type nameBudget struct{ used atomic.Int64 }

func (b *nameBudget) add(bytes int) { b.used.Add(int64(bytes)) }

// size is what a list costs all who share it.
func (l *nameList) size() int {
	bytes := len(l.key)
	if l.raw != l.key {
		bytes += len(l.raw)
	}
	return listCost + bytes + headCost*len(l.names)
}

func (x *sub) size() int { return subCost + len(x.name) }

func (k subKey) size() int { return wantCost + len(k.name) }

// ownNames is what a stream would cost if it shared nothing.
func (s *stream) ownNames() int {
	n := 0
	for _, w := range s.watches {
		n += w.size
		named := len(w.subs)
		if w.list != nil {
			n += w.list.size()
			named = max(named, len(w.list.names))
		}
		if w.kind == wire.Endpoints {
			n += wantCost * named
		}
	}
	return n
}

// recount tells all what the stream's names cost that it shares with nobody. Its
// lock is held.
func (s *stream) recount() {
	n := 0
	for _, w := range s.watches {
		n += w.size
	}
	if d := n - s.counted; d > countedNames || d < -countedNames || (n == 0 && d != 0) {
		s.server.names.add(d)
		s.counted = n
	}
}

// checkNames tells whether the stream may subscribe to what it does now; its
// names cost before bytes when the request came. What all streams have only bars
// those that ask for more: the others answer what they are sent, and would end for
// what newcomers do. Its lock is held.
func (s *stream) checkNames(before int) error {
	s.recount()
	o := &s.server.options
	used, own := s.server.names.used.Load(), s.ownNames()
	switch {
	case own > o.StreamNames:
		return fmt.Errorf("%w names on one stream: they take %d bytes, want at most %d; ask for fewer or shorter ones", errFull, own, o.StreamNames)
	case own > before && own > modestNames && used > int64(o.NameMemory):
		return fmt.Errorf("%w names on all streams: they take %d bytes, of which this stream's may be %d, want at most %d; "+
			"ask for fewer, come back later, or raise xds.admission.name_megabytes", errFull, used, own, o.NameMemory)
	}
	return nil
}
