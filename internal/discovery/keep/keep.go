// Package keep has what providers of endpoints share: the rule by which they
// hold what becomes empty, how long they wait after failures, and how they save
// what was listed last.
package keep

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
)

// Outdated is a service whose endpoints may have changed without our knowing.
type Outdated struct {
	Service string
	Since   time.Time
}

// OutdatedList is the list that a provider shows to readers. Reading never waits for the
// provider, so a disk that is slow to take a change holds no decision up.
type OutdatedList struct {
	list atomic.Pointer[[]Outdated] // nil before Set
}

// Set replaces the list.
func (o *OutdatedList) Set(list []Outdated) { o.list.Store(&list) }

// Get returns a copy of the list; nil before Set.
func (o *OutdatedList) Get() []Outdated {
	if list := o.list.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// TooMany reports whether more than half of the services that have endpoints, and
// at least two, are said to be empty at once: so it looks when a provider has
// lost its own view, and none of it is believed.
func TooMany(empty, all int) bool { return empty > 1 && 2*empty > all }

// Bounds of [Backoff].
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
)

// Backoff is how long to wait after so many failures in a row: at random between
// a second and twice as long as before, up to 30 seconds, so that many do not
// come back at once.
func Backoff(failures int) time.Duration {
	most := maxBackoff
	if failures < 5 { // 2^5 s are more
		most = minBackoff << max(0, failures)
	}
	return minBackoff + rand.N(most-minBackoff+1) //nolint:gosec // jitter is no secret
}

// Bare leaves of localities what a provider can say: where, and which endpoints.
func Bare(localities []isobar.ServiceLocality) []isobar.ServiceLocality {
	out := make([]isobar.ServiceLocality, len(localities))
	for i := range localities {
		out[i] = isobar.ServiceLocality{Locality: localities[i].Locality, Endpoints: slices.Clone(localities[i].Endpoints)}
	}
	return out
}

// Short bounds what is quoted from others.
func Short(s string) string {
	const most = 500
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// Signal says on a channel of capacity 1 that something has changed.
func Signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // a signal is waiting already
	}
}

// Await waits at most for patience until answered is closed or signals. It calls late
// when patience ends first.
func Await(ctx context.Context, answered <-chan struct{}, patience time.Duration, late func()) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C:
		late()
	case <-ctx.Done():
	}
}

// Seed returns the endpoints that the configuration file or another provider lists for
// a service that a provider takes over. nil: there is no such service, or its owner is
// the admin API.
func Seed(get func(name string) (isobar.Object, error), name string) []isobar.ServiceLocality {
	o, err := get(name)
	if err != nil || o.Owner == isobar.OwnerAPI {
		return nil
	}
	return Bare(o.Service.Localities)
}

// saveEvery is how often a [Saver] writes at most.
const saveEvery = time.Second

// Store keeps what was listed last; see package store, whose types fit.
type Store interface {
	Get(ctx context.Context, key string) (struct {
		Data     []byte
		Revision uint64
	}, error)
	CompareAndSwap(ctx context.Context, key string, revision uint64, data []byte) (uint64, error)
}

// Saver writes what a provider knows under one key, at most once a second.
// Make one with [NewSaver].
type Saver struct {
	store Store
	key   string
	opts  SaverOptions
	dirty chan struct{} // there is something to save; capacity 1

	stored uint64 // revision in the store; of the goroutine that saves
}

// SaverOptions of [NewSaver]. All are required.
type SaverOptions struct {
	// Encode returns what to save; empty says that there is nothing worth a first
	// write.
	Encode func() (data []byte, empty bool, err error)
	Log    *slog.Logger
	// Source is what the log calls the provider.
	Source string
}

// NewSaver makes a saver for one key of a store.
func NewSaver(store Store, key string, o SaverOptions) *Saver {
	return &Saver{store: store, key: key, opts: o, dirty: make(chan struct{}, 1)}
}

// Load returns what was saved last; nil if nothing was.
func (s *Saver) Load(ctx context.Context) ([]byte, error) {
	v, err := s.store.Get(ctx, s.key)
	if errors.Is(err, isobar.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.stored = v.Revision
	return v.Data, nil
}

// Changed says that there is something to save.
func (s *Saver) Changed() { Signal(s.dirty) }

// Run writes whenever something has changed, until ctx ends, and then what has
// not been written yet. failures counts what could not be saved.
func (s *Saver) Run(ctx context.Context, failures prometheus.Counter) {
	failed := false
	for {
		ended := false
		select {
		case <-s.dirty:
		case <-ctx.Done():
			ended = true
			select {
			case <-s.dirty:
			default:
				return // nothing has changed since
			}
		}
		wrote, err := s.save(context.WithoutCancel(ctx))
		if err != nil {
			failures.Inc()
			if !failed {
				s.opts.Log.Error("could not save the endpoints that a provider lists; retrying", "provider", s.opts.Source, "error", err)
			}
			s.Changed()
		}
		failed = err != nil
		if ended {
			return
		}
		if !wrote {
			continue // nothing to rest from: the next change is saved at once
		}
		rest := time.NewTimer(saveEvery)
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
		rest.Stop()
	}
}

// save reports whether it wrote, or tried to.
func (s *Saver) save(ctx context.Context) (wrote bool, err error) {
	data, empty, err := s.opts.Encode()
	if err != nil {
		return true, err
	}
	if empty && s.stored == 0 {
		return false, nil // as there is nothing there
	}
	revision, err := s.store.CompareAndSwap(ctx, s.key, s.stored, data)
	if err == nil {
		s.stored = revision
		return true, nil
	}
	// A write can fail after it took effect; the next one builds on the revision
	// that the store has now.
	if v, getErr := s.store.Get(ctx, s.key); getErr == nil {
		s.stored = v.Revision
	}
	return true, err
}
