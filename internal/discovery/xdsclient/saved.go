package xdsclient

import (
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

// restore fills the table with what was saved.
func (t *table) restore(data []byte) error {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("the saved services of discovery.xds can't be read: %w", err)
	}
	if s.Format > savedFormat {
		return fmt.Errorf("the saved services of discovery.xds were written by a newer version (format %d, this one reads up to %d)", s.Format, savedFormat)
	}
	for _, from := range s.Services {
		t.entries = append(t.entries, &entry{
			Service: Service{EDSName: from.EDSName, Settings: isobar.Service{Name: from.Name}},
			known:   true, listed: keep.Bare(from.Localities), at: from.At,
		})
	}
	t.sort()
	return nil
}

func (t *table) snapshot() saved {
	s := saved{Format: savedFormat, Services: []savedService{}}
	for _, e := range t.entries {
		if e.known { // what is listed is never written again, so it is shared
			s.Services = append(s.Services, savedService{Name: e.Settings.Name, EDSName: e.EDSName, At: e.at, Localities: e.listed})
		}
	}
	return s
}

func (s *saved) encode() ([]byte, error) { return json.Marshal(s) }
