package view

import (
	"sync"
	"sync/atomic"
)

// slot holds a resource that is encoded when it is first asked for.
type slot struct {
	ready atomic.Bool

	mu       sync.Mutex
	resource *Resource // not written after ready
	// fallback is the last good resource of the slot's predecessor. It stays
	// when the new content is refused, and is kept when its bytes are equal.
	fallback *Resource
}

// get encodes once. An error of encode has been reported by it; the fallback
// takes its place.
func (s *slot) get(encode func() (*Resource, error)) *Resource {
	if s.ready.Load() {
		return s.resource
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready.Load() {
		return s.resource
	}
	r, err := encode()
	if err != nil || (r != nil && s.fallback != nil && r.Version == s.fallback.Version) {
		r = s.fallback
	}
	s.resource, s.fallback = r, nil
	s.ready.Store(true)
	return r
}

// peek gives what a successor may fall back on.
func (s *slot) peek() *Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready.Load() {
		return s.resource
	}
	return s.fallback
}
