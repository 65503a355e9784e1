package xdsclient

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
)

const (
	storeKey = "xds-source"
	// savedFormat is the version of saved; a newer one is refused.
	savedFormat = 1
)

// saved is what is known of the services.
type saved struct {
	Format   int            `json:"format"`
	Services []savedService `json:"services"` // sorted by EDS name
}

type savedService struct {
	Name       string                   `json:"name"`
	EDSName    string                   `json:"eds_name"`
	At         time.Time                `json:"at,omitzero"`
	Localities []isobar.ServiceLocality `json:"localities"`
}

// load fills the table with what was saved; it is configured later.
func (c *Client) load(ctx context.Context) error {
	data, err := c.saver.Load(ctx)
	if err != nil {
		return fmt.Errorf("loading what another control plane listed: %w", err)
	}
	if data == nil {
		return nil
	}
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("what another control plane listed can't be read: %w", err)
	}
	if s.Format > savedFormat {
		return fmt.Errorf("what another control plane listed was saved by a newer version (format %d, this one reads up to %d)", s.Format, savedFormat)
	}
	for _, from := range s.Services {
		c.table.entries = append(c.table.entries, &entry{
			Service: Service{EDSName: from.EDSName, Settings: isobar.Service{Name: from.Name}},
			known:   true, listed: keep.Bare(from.Localities), at: from.At,
		})
	}
	c.table.sort()
	return nil
}

// encode gives what is to be saved.
func (c *Client) encode() (data []byte, empty bool, err error) {
	now := c.snapshot()
	data, err = json.Marshal(now)
	return data, len(now.Services) == 0, err
}

func (c *Client) snapshot() saved {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := saved{Format: savedFormat, Services: []savedService{}}
	for _, e := range c.table.entries {
		if e.known { // what is listed is never written again, so it is shared
			s.Services = append(s.Services, savedService{Name: e.Settings.Name, EDSName: e.EDSName, At: e.at, Localities: e.listed})
		}
	}
	return s
}
