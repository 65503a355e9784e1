package xdsource

import (
	"slices"
	"strings"
	"time"
)

// Outdated is a service whose endpoints may have changed without our knowing.
type Outdated struct {
	Service string
	Since   time.Time
}

// Outdated lists the services whose endpoints are those of before, sorted: the
// server can't be reached or has not answered for them yet, what it says is
// refused, or it calls them empty.
func (c *Client) Outdated() []Outdated {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg == nil {
		return nil
	}
	var out []Outdated
	for _, e := range c.table.entries {
		if !e.doubtful.IsZero() {
			out = append(out, Outdated{Service: e.Settings.Name, Since: e.doubtful})
		}
	}
	slices.SortFunc(out, func(a, b Outdated) int { return strings.Compare(a.Service, b.Service) })
	return out
}

// doubt notes since when what is in force is not what the server lists.
func (t *table) doubt(now time.Time) {
	for _, e := range t.entries {
		switch e.state() {
		case Kept, Held, Refused:
			if e.doubtful.IsZero() {
				e.doubtful = now
			}
		case Waiting, Current, Empty:
			e.doubtful = time.Time{}
		}
	}
}
