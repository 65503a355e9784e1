// Package keep has what providers of endpoints share: the rule by which they
// hold what becomes empty, how long they wait after failures, and how they save
// what was listed last.
package keep

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// Outdated is a service whose endpoints may have changed without our knowing.
type Outdated struct {
	Service string
	Since   time.Time
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

// Signal says on a channel of room for one that something has changed.
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
