package xds

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// What subscriptions of open streams cost, in bytes, estimated. A request of 4
// MiB makes the server remember several times as much, and what many streams ask
// for would else be bounded by their number alone.
const (
	subCost  = 128 // of a name that is on its way to a stream, or that a delta stream subscribes to
	listCost = 64  // of a list of names that streams share, beside its bytes
	headCost = 16  // of a name in a list, beside its bytes
	wantCost = 512 // of an assignment that somebody in a locality subscribes to, in the zone and its view

	// modestNames is what each stream may always subscribe to: some hundred
	// names. So a few streams with very many of them can't keep others out.
	modestNames = 64 << 10
	// accountNames is the part of the memory for names that one account may use, and
	// modestAccountNames what each of its streams may always subscribe to.
	accountNames       = 8
	modestAccountNames = 8 << 10
	// countedNames is how far a stream's cost may be from what all know of it:
	// each push puts names on their way, and each answer takes them off.
	countedNames = 8 << 10
)

// nameBudget is what the names cost that all open streams subscribe to, and of it
// those of each account.
type nameBudget struct {
	used atomic.Int64

	mu       sync.Mutex
	accounts map[string]*nameAccount
}

// nameAccount is what the names cost that one account was the first to subscribe to.
// nil is that of all who have none. What others still subscribe to when its last stream
// ends no longer counts for it.
type nameAccount struct {
	name    string
	used    atomic.Int64
	streams int // guarded by nameBudget.mu
}

// add counts bytes for an account; below 0 = they are given back.
func (b *nameBudget) add(a *nameAccount, bytes int) {
	b.used.Add(int64(bytes))
	if a != nil {
		a.used.Add(int64(bytes))
	}
}

// open gives the account of a new stream, which has to close it.
func (b *nameBudget) open(name string) *nameAccount {
	if name == "" {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accounts[name]
	if a == nil {
		if b.accounts == nil {
			b.accounts = map[string]*nameAccount{}
		}
		a = &nameAccount{name: name}
		b.accounts[name] = a
	}
	a.streams++
	return a
}

func (b *nameBudget) close(a *nameAccount) {
	if a == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.streams--; a.streams == 0 {
		delete(b.accounts, a.name)
	}
}

// fullest returns the most that one account uses.
func (b *nameBudget) fullest() (used int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.accounts {
		used = max(used, a.used.Load())
	}
	return used
}

// accountOf says under which account a stream or poll counts; "" = none.
func (s *Server) accountOf(ctx context.Context) string {
	if s.options.Account == nil {
		return ""
	}
	return s.options.Account(ctx)
}

// size is what a list costs all who share it.
func (l *nameList) size() int {
	bytes := len(l.key)
	if l.raw != l.key {
		bytes += len(l.raw)
	}
	return listCost + bytes + headCost*len(l.names)
}

func (x *sub) size() int { return subSize(x.name) }

func subSize(name string) int { return subCost + len(name) }

func (k subKey) size() int { return wantCost + len(k.name) }

// growth is asked before memory for names is used: many streams that ask at once would
// else all pass one check before any of them has counted. nil = what it grows by is allowed.
type growth func() error

// checkedNames is after how many names a growth is asked again.
const checkedNames = 16

// growth returns that of a request after which the stream would cost own bytes, if it
// shared nothing, and before bytes when it came.
func (s *stream) growth(before, own int) growth {
	return func() error { return s.mayGrow(before, own) }
}

// reserve counts subs of a watch before they are made; recount finds out what is used
// in the end. The stream's lock is held.
func (s *stream) reserve(bytes int, may growth) error {
	s.server.names.add(s.account, bytes)
	if err := may(); err != nil {
		s.server.names.add(s.account, -bytes)
		return err
	}
	s.counted += bytes
	return nil
}

// ownNames is what a stream would cost if it shared nothing.
func (s *stream) ownNames() int {
	n := 0
	for _, w := range s.watches {
		n += s.ownOf(w)
	}
	return n
}

func (s *stream) ownOf(w *watch) int {
	n, named := w.size, len(w.subs)
	if w.list != nil {
		n += w.list.size()
		named = max(named, len(w.list.names))
	}
	if w.kind == resource.Endpoints {
		n += wantCost * named
	}
	return n
}

// leastCost is what a further name of a watch costs at least.
func (w *watch) leastCost() int {
	if w.kind == resource.Endpoints {
		return wantCost
	}
	return headCost
}

// unknownOf counts the names that a watch has not subscribed to, and what their subs cost.
func (w *watch) unknownOf(names []string) (n, bytes int) {
	for _, name := range names {
		if w.subs[name] == nil {
			n++
			bytes += subSize(name)
		}
	}
	return n, bytes
}

// recount tells all what the stream's names cost that it shares with nobody. Its
// lock is held.
func (s *stream) recount() {
	n := 0
	for _, w := range s.watches {
		n += w.size
	}
	if d := n - s.counted; d > countedNames || d < -countedNames || (n == 0 && d != 0) {
		s.server.names.add(s.account, d)
		s.counted = n
	}
}

// checkNames tells whether the stream may subscribe to what it does now; its
// names cost before bytes when the request came. What all streams have only bars
// those that ask for more: the others answer what they are sent, and would end for
// what newcomers do. Its lock is held.
func (s *stream) checkNames(before int) error {
	s.recount()
	own, o := s.ownNames(), &s.server.options
	if own > o.StreamNames {
		return fmt.Errorf("%w names on one stream: they take %d bytes, want at most %d; ask for fewer or shorter ones", errFull, own, o.StreamNames)
	}
	return s.mayGrow(before, own)
}

// mayGrow tells whether the names of the stream may cost own bytes rather than before.
// It is asked before a request is done as well, with what it costs at least: requests
// that are refused would else cost as much as others while they are done.
func (s *stream) mayGrow(before, own int) error {
	o := &s.server.options
	if own <= before {
		return nil
	}
	if a := s.account; a != nil && own > modestAccountNames {
		if used := a.used.Load(); used > int64(o.NameMemory/accountNames) {
			return fmt.Errorf("%w names on all streams of one address: they take %d bytes, of which this stream's may be %d, want at most %d; "+
				"ask for fewer, show a certificate, or raise xds.admission.name_megabytes", errFull, used, own, o.NameMemory/accountNames)
		}
	}
	if used := s.server.names.used.Load(); own > modestNames && used > int64(o.NameMemory) {
		return fmt.Errorf("%w names on all streams: they take %d bytes, of which this stream's may be %d, want at most %d; "+
			"ask for fewer, come back later, or raise xds.admission.name_megabytes", errFull, used, own, o.NameMemory)
	}
	return nil
}
