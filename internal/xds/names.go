package xds

import (
	"slices"
	"sync"

	"github.com/isobar-xds/isobar/internal/wire"
)

// nameList is the names of a subscription as a request lists them. Streams that
// send the same list share one, so that a subscription takes no memory of its
// own; and a request whose names are encoded like those of the request before
// need not be decoded. Immutable.
type nameList struct {
	raw     string   // as encoded in a request
	names   []string // sorted, unique; parts of raw
	holders int      // guarded by nameLists.mu
}

func (l *nameList) has(name string) bool {
	_, found := slices.BinarySearch(l.names, name)
	return found
}

// nameLists keeps the lists that streams hold.
type nameLists struct {
	mu    sync.Mutex
	byRaw map[string]*nameList
}

// take gives the list of names, to be given back with release.
func (l *nameLists) take(names []string) *nameList {
	raw := wire.AppendNames(nil, names)
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.byRaw[string(raw)]
	if list == nil {
		list = &nameList{raw: string(raw)}
		list.names = wire.SplitNames(list.raw)
		slices.Sort(list.names)
		list.names = slices.Clip(slices.Compact(list.names))
		if l.byRaw == nil {
			l.byRaw = map[string]*nameList{}
		}
		l.byRaw[list.raw] = list
	}
	list.holders++
	return list
}

// release gives a list back; nil is none.
func (l *nameLists) release(list *nameList) {
	if list == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if list.holders--; list.holders == 0 {
		delete(l.byRaw, list.raw)
	}
}
