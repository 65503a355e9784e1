package dns

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

const (
	storeKey = "dns-source"
	// savedFormat is the version of saved; a newer one is refused.
	savedFormat = 1
)

// saved is what is known of the names.
type saved struct {
	Format int         `json:"format"`
	Names  []savedName `json:"names"` // sorted
}

type savedName struct {
	Name      string            `json:"name"`
	SRV       bool              `json:"srv,omitempty"`
	Port      uint16            `json:"port,omitempty"`
	Family    Family            `json:"family,omitempty"`
	At        time.Time         `json:"at,omitzero"`
	Endpoints []isobar.Endpoint `json:"endpoints"`
}

// load fills the table with what was saved; it is configured later.
func (p *Provider) load(ctx context.Context) error {
	data, err := p.saver.Load(ctx)
	if err != nil {
		return fmt.Errorf("loading the saved services of discovery.dns: %w", err)
	}
	if data == nil {
		return nil
	}
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("the saved services of discovery.dns can't be read: %w", err)
	}
	if s.Format > savedFormat {
		return fmt.Errorf("the saved services of discovery.dns were written by a newer version (format %d, this one reads up to %d)", s.Format, savedFormat)
	}
	for _, from := range s.Names {
		if len(from.Endpoints) == 0 {
			continue
		}
		p.table.names = append(p.table.names, &name{
			Lookup: Lookup{Name: from.Name, SRV: from.SRV, Port: from.Port, Family: from.Family},
			known:  true, endpoints: from.Endpoints, at: from.At,
		})
	}
	slices.SortStableFunc(p.table.names, func(a, b *name) int { return compareLookups(a.Lookup, b.Lookup) })
	return nil
}

// encode gives what is to be saved.
func (p *Provider) encode() (data []byte, empty bool, err error) {
	s := saved{Format: savedFormat, Names: []savedName{}}
	p.mu.Lock()
	for _, n := range p.table.names {
		if len(n.endpoints) > 0 { // they are never written again, so they are shared
			s.Names = append(s.Names, savedName{Name: n.Name, SRV: n.SRV, Port: n.Port, Family: n.Family, At: n.at, Endpoints: n.endpoints})
		}
	}
	p.mu.Unlock()
	data, err = json.Marshal(s)
	return data, len(s.Names) == 0, err
}
