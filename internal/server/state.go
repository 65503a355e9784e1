package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/reload"
	"github.com/isobar-xds/isobar/internal/store"
)

// The keys under which state is kept.
const (
	planKey   = "plan"
	healthKey = "health"
	// configuredKey has the services of the configuration.
	configuredKey = "configured"
)

// pageKey is where a page of the history is kept: pages take turns in a ring.
func pageKey(number uint64) string { return fmt.Sprintf("history-%02d", number%plan.MaxPages) }

// readable reports whether what the loop kept can be read. The loop would tell, too,
// but not before clients have come, and it may have saved one part by then when it
// finds that another is of a newer version. A history that is damaged can be done
// without, but not one that only a newer version could go on with.
func readable(s store.Store) error {
	for _, key := range []string{planKey, healthKey} {
		if _, err := s.Get(context.Background(), key); err != nil && !errors.Is(err, isobar.ErrNotFound) {
			return err
		}
	}
	for n := range uint64(plan.MaxPages) {
		if _, err := s.Get(context.Background(), pageKey(n)); errors.Is(err, store.ErrNewerFormat) {
			return err
		}
	}
	return nil
}

// loopState keeps state as JSON in the store: that of the loop, that of what puts
// configuration in force, and that of a member of a group. Each key has one writer.
type loopState struct {
	store    store.Store
	planSize int // bytes of the newest plan; of its one writer

	mu        sync.Mutex
	revisions map[string]uint64 // as last written
}

func newLoopState(s store.Store) *loopState {
	return &loopState{store: s, revisions: map[string]uint64{}}
}

// LoadPlan implements control.State.
func (s *loopState) LoadPlan() (*plan.Saved, error) { return loadJSON[plan.Saved](s.store, planKey) }

// SavePlan implements control.State.
func (s *loopState) SavePlan(saved plan.Saved) error {
	data, err := saved.AppendJSON(make([]byte, 0, s.planSize+s.planSize/8))
	if err != nil {
		return err
	}
	s.planSize = len(data)
	return s.Write(planKey, data)
}

// LoadHealth implements control.State.
func (s *loopState) LoadHealth() (*health.SavedMonitor, error) {
	return loadJSON[health.SavedMonitor](s.store, healthKey)
}

// SaveHealth implements control.State.
func (s *loopState) SaveHealth(saved health.SavedMonitor) error {
	data, err := saved.AppendJSON(nil)
	if err != nil {
		return err
	}
	return s.Write(healthKey, data)
}

// LoadHistory implements control.State. With an error, it returns the pages that
// can be read.
func (s *loopState) LoadHistory() ([]plan.Page, error) {
	var out []plan.Page
	var wrong error
	for n := range uint64(plan.MaxPages) {
		page, err := loadJSON[plan.Page](s.store, pageKey(n))
		switch {
		case err != nil:
			wrong = errors.Join(wrong, err)
		case page != nil && page.Number%plan.MaxPages == n:
			out = append(out, *page)
		}
	}
	return out, wrong
}

// SavePage implements control.State.
func (s *loopState) SavePage(page plan.Page) error { return s.save(pageKey(page.Number), page) }

// LoadConfigured implements [reload.State].
func (s *loopState) LoadConfigured() (*reload.Configured, error) {
	return loadJSON[reload.Configured](s.store, configuredKey)
}

// SaveConfigured implements [reload.State].
func (s *loopState) SaveConfigured(c reload.Configured) error {
	data, err := c.Encode()
	if err != nil {
		return err
	}
	return s.Write(configuredKey, data)
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

// save writes a key. It knows at which revision the key stands from its last
// write, and reads it only the first time and after another process has written.
func (s *loopState) save(key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return s.Write(key, data)
}

// Read implements [member.State].
func (s *loopState) Read(key string) ([]byte, error) {
	v, err := s.store.Get(context.Background(), key)
	if errors.Is(err, isobar.ErrNotFound) {
		return nil, nil
	}
	return v.Data, err
}

// Write implements [member.State]: it writes a key as it is.
func (s *loopState) Write(key string, data []byte) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx := context.Background()
	revision, known := s.revisions[key]
	if !known {
		if revision, err = s.revision(ctx, key); err != nil {
			return err
		}
	}
	revision, err = s.store.CompareAndSwap(ctx, key, revision, data)
	if err != nil {
		delete(s.revisions, key)
		return err
	}
	s.revisions[key] = revision
	return nil
}

// revision reads at which revision a key stands; 0 where nothing does.
func (s *loopState) revision(ctx context.Context, key string) (uint64, error) {
	v, err := s.store.Get(ctx, key)
	if errors.Is(err, isobar.ErrNotFound) {
		return 0, nil
	}
	return v.Revision, err
}
