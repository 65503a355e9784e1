package discovery

import (
	"maps"
	"time"

	"github.com/isobar-xds/isobar/internal/health"
)

// sinces says when each override was set. Values are never written once they
// are part of contents. An override that an earlier version saved has none.
type sinces map[health.Key]time.Time

// with returns a copy with a time added.
func (s sinces) with(k health.Key, at time.Time) sinces {
	out := maps.Clone(s)
	if out == nil {
		out = sinces{}
	}
	out[k] = at
	return out
}

// of returns the times of the overrides in a table alone.
func (s sinces) of(t health.Table) sinces {
	out := sinces{}
	for _, o := range t.Overrides() {
		if at, known := s[o.Key]; known {
			out[o.Key] = at
		}
	}
	return out
}
