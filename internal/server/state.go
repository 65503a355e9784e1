package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/store"
)

// The keys under which the loop's state is kept.
const (
	planKey   = "plan"
	healthKey = "health"
)

// loopState keeps the loop's state as JSON in the store. The loop is its only
// writer.
type loopState struct {
	store store.Store
}

// LoadPlan implements control.State.
func (s loopState) LoadPlan() (*plan.Saved, error) { return loadJSON[plan.Saved](s.store, planKey) }

// SavePlan implements control.State.
func (s loopState) SavePlan(saved plan.Saved) error { return saveJSON(s.store, planKey, saved) }

// LoadHealth implements control.State.
func (s loopState) LoadHealth() (*health.SavedKeeper, error) {
	return loadJSON[health.SavedKeeper](s.store, healthKey)
}

// SaveHealth implements control.State.
func (s loopState) SaveHealth(saved health.SavedKeeper) error {
	return saveJSON(s.store, healthKey, saved)
}

// loadJSON reads a key; nil without error where nothing stands there.
func loadJSON[T any](s store.Store, key string) (*T, error) {
	v, err := s.Get(context.Background(), key)
	if errors.Is(err, isobar.ErrNotFound) {
		return nil, nil //nolint:nilnil // nothing saved is no error, as control.State says
	}
	if err != nil {
		return nil, err
	}
	var saved T
	if err := json.Unmarshal(v.Data, &saved); err != nil {
		return nil, fmt.Errorf("state %q can't be read: %w", key, err)
	}
	return &saved, nil
}

func saveJSON[T any](s store.Store, key string, saved T) error {
	data, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	ctx := context.Background()
	v, err := s.Get(ctx, key)
	if err != nil && !errors.Is(err, isobar.ErrNotFound) {
		return err
	}
	_, err = s.CompareAndSwap(ctx, key, v.Revision, data)
	return err
}

// checkers shows the loop what it needs of the health discovery service.
type checkers struct {
	*hds.Server
}

// Connected implements control.Checkers.
func (c checkers) Connected(now time.Time) []health.Checker {
	connected := c.Checkers(now)
	out := make([]health.Checker, len(connected))
	for i := range connected {
		out[i] = connected[i].Checker
	}
	return out
}

// listCheckers shows the checkers to operators.
func (s *Server) listCheckers() []admin.Checker {
	connected := s.hds.Checkers(time.Now())
	out := make([]admin.Checker, len(connected))
	for i := range connected {
		c := &connected[i]
		out[i] = admin.Checker{
			ID: c.ID, Locality: c.Locality, Agent: c.UserAgent, Peer: c.Address, Since: c.Since, Protocols: c.Protocols.String(),
			Polling: c.Polling, Designated: c.Designated, LastReport: c.LastReport, Rejected: c.Rejected, Reason: c.LastReason,
		}
	}
	return out
}
