package xdsclient

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/discovery/keep"
)

// Outdated lists the services whose endpoints are those of before, sorted: the
// server can't be reached or has not answered for them yet, what it says is
// refused, or it calls them empty.
// It waits for nobody, so a disk that is slow to take a change holds no decision up.
func (c *Client) Outdated() []keep.Outdated {
	if list := c.outdated.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// outdated is the list for [Client.Outdated].
func (t *table) outdated() []keep.Outdated {
	var out []keep.Outdated
	for _, e := range t.entries {
		if !e.doubtful.IsZero() {
			out = append(out, keep.Outdated{Service: e.Settings.Name, Since: e.doubtful})
		}
	}
	slices.SortFunc(out, func(a, b keep.Outdated) int { return strings.Compare(a.Service, b.Service) })
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
