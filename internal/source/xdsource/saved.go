package xdsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/isobar-xds/isobar"
)

const (
	storeKey = "xds-source"
	// savedFormat is the version of saved; a newer one is refused.
	savedFormat = 1
	// saveEvery is how often the state is written at most.
	saveEvery = time.Second
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
	v, err := c.opts.Store.Get(ctx, storeKey)
	if errors.Is(err, isobar.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("loading what another control plane listed: %w", err)
	}
	var s saved
	if err := json.Unmarshal(v.Data, &s); err != nil {
		return fmt.Errorf("what another control plane listed can't be read: %w", err)
	}
	if s.Format > savedFormat {
		return fmt.Errorf("what another control plane listed was saved by a newer version (format %d, this one reads up to %d)", s.Format, savedFormat)
	}
	c.stored = v.Revision
	for _, from := range s.Services {
		c.table.entries = append(c.table.entries, &entry{
			Service: Service{EDSName: from.EDSName, Settings: isobar.Service{Name: from.Name}},
			known:   true, listed: bare(from.Localities), at: from.At,
		})
	}
	c.table.sort()
	return nil
}

// save writes what is known when it has changed, and at the end.
func (c *Client) save(ctx context.Context) {
	failed := false
	for {
		ended := false
		select {
		case <-c.dirty:
		case <-ctx.Done():
			ended = true
			select {
			case <-c.dirty:
			default:
				return // nothing has changed since
			}
		}
		wrote, err := c.saveNow(context.WithoutCancel(ctx))
		if err != nil {
			c.metrics.saveErrors.Inc()
			if !failed {
				c.opts.Log.Error("what another control plane lists could not be saved; it is tried again", "error", err)
			}
			signal(c.dirty)
		}
		failed = err != nil
		if ended {
			return
		}
		if !wrote {
			continue // nothing to rest from: what comes next is saved at once
		}
		rest := time.NewTimer(saveEvery)
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
		rest.Stop()
	}
}

// saveNow tells whether it wrote, or tried to.
func (c *Client) saveNow(ctx context.Context) (wrote bool, err error) {
	now := c.snapshot()
	if len(now.Services) == 0 && c.stored == 0 {
		return false, nil // as there is nothing there
	}
	data, err := json.Marshal(now)
	if err != nil {
		return true, err
	}
	revision, err := c.opts.Store.CompareAndSwap(ctx, storeKey, c.stored, data)
	if err == nil {
		c.stored = revision
		return true, nil
	}
	// A write can fail after it took effect; the next one builds on what stands
	// there now.
	if v, getErr := c.opts.Store.Get(ctx, storeKey); getErr == nil {
		c.stored = v.Revision
	}
	return true, err
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
