package xds

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// nameList is the names of a subscription. Streams that ask for the same names
// share one, in whatever order they list them, so that a subscription takes no
// memory of its own; and a request that lists the names of the request before
// need not be decoded. Immutable.
type nameList struct {
	raw     string       // as encoded in a request, in the order of the first stream
	listed  nameSum      // of raw
	names   []string     // sorted, unique; parts of key
	key     string       // the names, encoded in this order
	xdstp   bool         // one of them is an xdstp name
	holders int          // guarded by nameLists.mu
	account *nameAccount // of the first stream
}

func (l *nameList) has(name string) bool {
	_, found := slices.BinarySearch(l.names, name)
	return found
}

// nameSum tells lists of names apart, whatever their order: many clients walk
// over a hash table to list their names, and each time it comes out otherwise.
// It adds up hashes with a seed that nobody else knows, so that two lists are
// taken for the same by mistake once in 2^64 times, and never by intent.
type nameSum struct {
	count int
	hash  uint64
}

var nameSeed = maphash.MakeSeed()

// sumNames sums up the names at the beginning of what follows the head of a
// request, and returns what comes after them.
func sumNames(rest []byte) (sum nameSum, after []byte) {
	for {
		name, next, ok := resource.CutName(rest)
		if !ok {
			return sum, rest
		}
		sum.count++
		sum.hash += maphash.Bytes(nameSeed, name)
		rest = next
	}
}

// add adds a name as sumNames does.
func (s *nameSum) add(name string) {
	s.count++
	s.hash += maphash.String(nameSeed, name)
}

// nameLists keeps the lists that streams hold.
type nameLists struct {
	budget *nameBudget

	mu    sync.Mutex
	byKey map[string]*nameList
}

// take returns the list of names, to be given back with release. It asks may, if there
// is one, before it makes a list.
func (l *nameLists) take(names []string, a *nameAccount, may growth) (*nameList, error) {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	key := resource.EncodeNames(sorted)
	if list := l.share(key); list != nil {
		return list, nil
	}
	if may != nil {
		if err := may(); err != nil {
			return nil, err
		}
	}
	made := newNameList(names, sorted, key)
	made.account = a
	l.mu.Lock()
	defer l.mu.Unlock()
	if list := l.byKey[key]; list != nil { // made meanwhile
		list.holders++
		return list, nil
	}
	if l.byKey == nil {
		l.byKey = map[string]*nameList{}
	}
	made.holders = 1
	l.byKey[key] = made
	l.budget.add(a, made.size())
	return made, nil
}

// share returns the list of a key if there is one, to be given back with release.
func (l *nameLists) share(key string) *nameList {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.byKey[key]
	if list != nil {
		list.holders++
	}
	return list
}

// newNameList makes the list of names; sorted are these without repetitions, and become
// parts of key.
func newNameList(names, sorted []string, key string) *nameList {
	out := &nameList{raw: key, key: key}
	if !slices.Equal(names, sorted) { // else once is enough
		out.raw = resource.EncodeNames(names)
	}
	for _, n := range names {
		out.listed.add(n)
	}
	out.names = sorted
	if cap(sorted) > len(sorted)+len(sorted)/4 { // most were repetitions
		out.names = slices.Clone(sorted)
	}
	resource.NamesWithin(key, out.names)
	out.xdstp = slices.ContainsFunc(out.names, resource.IsXDSTP)
	return out
}

// release gives a list back; nil is none.
func (l *nameLists) release(list *nameList) {
	if list == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if list.holders--; list.holders == 0 {
		delete(l.byKey, list.key)
		l.budget.add(list.account, -list.size())
	}
}

// What subscriptions of open streams cost, in bytes, estimated. A request of 4
// MiB makes the server remember several times as much, and what many streams ask
// for would else be bounded by their number alone.
const (
	subCost  = 128 // of a name that is on its way to a stream, or that a delta stream subscribes to
	listCost = 64  // of a list of names that streams share, beside its bytes
	headCost = 16  // of a name in a list, beside its bytes
	wantCost = 512 // of an assignment that a client in a locality subscribes to, in the group and its view

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

// open returns the account of a new stream, which has to close it.
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
