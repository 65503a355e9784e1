package lrs

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxUnknown bounds the names that are remembered: they come from clients.
	maxUnknown = 100
	// unknownFor is how long a name is shown after the last report with it.
	unknownFor = 5 * time.Minute
	// unknownStep is how exact that is. Between two steps a report changes nothing.
	unknownStep = 10 * time.Second
)

// unknownClusters remembers the names of clusters in load reports that are no
// services. It is safe for concurrent use.
type unknownClusters struct {
	mu   sync.RWMutex
	last map[string]time.Time // newest report, by name
}

// note remembers a name and reports whether it is new. It makes no garbage for a
// name that it knows.
func (u *unknownClusters) note(name []byte, now time.Time) (isNew bool) {
	u.mu.RLock()
	at, known := u.last[string(name)]
	full := len(u.last) >= maxUnknown
	u.mu.RUnlock()
	if known && now.Sub(at) < unknownStep {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !known && full {
		maps.DeleteFunc(u.last, func(_ string, at time.Time) bool { return now.Sub(at) > unknownFor })
		if len(u.last) >= maxUnknown {
			return false
		}
	}
	if u.last == nil {
		u.last = map[string]time.Time{}
	}
	u.last[string(name)] = now
	return !known
}

// list returns the names that reports of the last minutes had, sorted.
func (u *unknownClusters) list(now time.Time) []string {
	u.mu.RLock()
	defer u.mu.RUnlock()
	var out []string
	for name, at := range u.last {
		if now.Sub(at) <= unknownFor {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Unknown returns the names of clusters in load reports of the last five minutes
// that are no services, sorted, at most 100: a name that is misspelt somewhere,
// or a cluster that another control plane manages. Envoys report their
// management cluster, too; Options.ManagementCluster leaves it out.
func (s *Server) Unknown() []string { return s.unknown.list(time.Now()) }

// noteUnknown books an entry on a cluster that is no service.
func (b *booking) noteUnknown(name []byte) {
	s := b.stream.server
	if string(name) == s.opts.ManagementCluster {
		return
	}
	s.metrics.unknown.Inc()
	if s.unknown.note(name, b.options.Arrived) {
		if skipped, ok := s.limit.Allow(b.options.Arrived); ok {
			s.log.Info("a client reports load on a cluster that is no service: is its name misspelt, here or there?", "cluster", string(name),
				"node", b.stream.node.ID, "locality", b.stream.node.Locality.String(), "skipped_lines", skipped)
		}
	}
}
