package xds

import (
	"hash/maphash"
	"slices"
	"sync"

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
// request, and gives what comes after them.
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

// nameLists keeps the lists that streams hold.
type nameLists struct {
	budget *nameBudget

	mu    sync.Mutex
	byKey map[string]*nameList
}

// take gives the list of names, to be given back with release. It asks may, if there
// is one, before it makes a list.
func (l *nameLists) take(names []string, a *nameAccount, may growth) (*nameList, error) {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	key := resource.AppendNames(nil, slices.Compact(sorted))
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.byKey[string(key)]
	if list == nil {
		if may != nil {
			if err := may(); err != nil {
				return nil, err
			}
		}
		list = newNameList(names, string(key))
		if l.byKey == nil {
			l.byKey = map[string]*nameList{}
		}
		l.byKey[list.key] = list
		list.account = a
		l.budget.add(a, list.size())
	}
	list.holders++
	return list, nil
}

func newNameList(names []string, key string) *nameList {
	raw := resource.AppendNames(nil, names)
	out := &nameList{raw: string(raw), key: key}
	out.listed, _ = sumNames(raw)
	if out.raw == key { // once is enough
		out.raw = key
	}
	out.names = slices.Clip(resource.SplitNames(key))
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
