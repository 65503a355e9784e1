package hds

import (
	"time"

	"github.com/isobar-xds/isobar/internal/health"
)

// maxMetadata bounds, in bytes, what is kept of the metadata that one checker
// adds to its entries, of all endpoints together. The metadata of entries for
// which there is no room is dropped; their status counts.
const maxMetadata = 1 << 20

// AddMetadata adds to votes what the connected checkers said beside the status
// of an endpoint, as JSON text.
func (s *Server) AddMetadata(reports []health.ServiceReport) {
	said := map[string]map[health.Key]string{}
	for _, c := range s.present(time.Now()) {
		if m := c.metadata(); len(m) > 0 {
			said[c.id] = m
		}
	}
	if len(said) == 0 {
		return
	}
	for i := range reports {
		for j := range reports[i].Endpoints {
			v := &reports[i].Endpoints[j]
			for k := range v.Votes {
				v.Votes[k].Metadata = said[v.Votes[k].Checker][v.Key]
			}
		}
	}
}

// metadata gives what the checker added, of the endpoints where it did.
func (c *checker) metadata() map[health.Key]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported.metadata == 0 {
		return nil
	}
	out := map[health.Key]string{}
	for i := range c.reported.slots {
		if s := &c.reported.slots[i]; s.metadata != "" {
			out[s.key] = s.metadata
		}
	}
	return out
}
