package view

import (
	"sync"
	"sync/atomic"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// renamed holds what is encoded of one service under other names than its own,
// which are xdstp names, and what has a mark (resource.Remark).
type renamed struct {
	mu    sync.Mutex
	slots map[staticKey]*slot
	size  int64 // that is taken from the builder's
	over  bool  // the service is gone, or has another form: nothing more is kept
}

// staticKey is a resource under another name than the service's, or with a mark.
type staticKey struct {
	kind resource.Kind
	api  rpc.APIVersion
	grpc bool
	name string
	mark uint16
	old  bool // for old Envoys
}

// Bounds on what is kept: any number of names stands for a service, and whoever
// asks may make them up. What is beyond is encoded whenever somebody asks.
const (
	maxRenamed     = 1024     // names of a service
	maxRenamedSize = 64 << 20 // bytes, estimated, of all that are kept by one builder
)

// renamedCost estimates what a name takes: it stands in a resource and around it
// several times.
func renamedCost(key staticKey) int64 { return int64(1024 + 6*len(key.name)) }

// slot finds or makes the slot of a name. used is what all services take.
func (r *renamed) slot(key staticKey, used *atomic.Int64) *slot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.slots[key]; found != nil {
		return found
	}
	made := &slot{}
	if r.over || len(r.slots) >= maxRenamed {
		return made
	}
	cost := renamedCost(key)
	if used.Add(cost) > maxRenamedSize {
		used.Add(-cost)
		return made
	}
	if r.slots == nil {
		r.slots = map[staticKey]*slot{}
	}
	r.slots[key], r.size = made, r.size+cost
	return made
}

// succeed takes over the names of a service of another form, with what they
// take.
func (r *renamed) succeed(old *renamed) {
	old.mu.Lock()
	defer old.mu.Unlock()
	r.slots = make(map[staticKey]*slot, len(old.slots))
	for key, s := range old.slots {
		r.slots[key] = &slot{fallback: s.peek()}
	}
	r.size, old.size, old.over = old.size, 0, true
}

// drop gives back what the names of a service that is gone take.
func (r *renamed) drop(used *atomic.Int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	used.Add(-r.size)
	r.size, r.over = 0, true
}
