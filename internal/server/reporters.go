package server

import (
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/reload"
	"github.com/isobar-xds/isobar/internal/xds"
)

// subscriptionGrace is for how long a locality that subscribed to a service may
// report on it: gRPC's longest back-off, so that clients whose discovery
// streams broke and whose load report streams did not go on counting.
const subscriptionGrace = 2 * time.Minute

// noteEvery is how long a yes is good for. It is asked for with each service of
// each report, and to find out takes the locks of all discovery streams.
const noteEvery = 10 * time.Second

// recentSubscriptions remembers who subscribed to what not long ago. It holds
// nothing that was not served.
type recentSubscriptions struct {
	mu    sync.RWMutex
	seen  map[subscriber]time.Time
	swept time.Time
}

type subscriber struct {
	locality isobar.Locality
	service  string
}

// note remembers a subscription.
func (r *recentSubscriptions) note(k subscriber, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[subscriber]time.Time{}
	}
	if now.Sub(r.swept) > subscriptionGrace {
		r.swept = now
		for k, at := range r.seen {
			if now.Sub(at) > subscriptionGrace+noteEvery {
				delete(r.seen, k)
			}
		}
	}
	r.seen[k] = now
}

// has reports whether a subscription was noted not longer ago than that.
func (r *recentSubscriptions) has(k subscriber, now time.Time, ago time.Duration) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	at, ok := r.seen[k]
	return ok && now.Sub(at) <= ago
}

// reporters decides who may report load.
type reporters struct {
	settings *reload.Settings
	xds      *xds.Server
	recent   recentSubscriptions
}

// may reports whether clients of a locality may report on a service: on
// any, or, where it is configured, on those that someone there subscribes to.
// It need not be the same stream or connection: many clients keep one for load
// reports alone.
func (r *reporters) may(l isobar.Locality, service string) bool {
	if !r.settings.Current().SubscribedOnly {
		return true
	}
	k, now := subscriber{l, service}, time.Now()
	if r.recent.has(k, now, noteEvery) {
		return true
	}
	if r.xds.Subscribed(l, service) {
		r.recent.note(k, now)
		return true
	}
	return r.recent.has(k, now, subscriptionGrace+noteEvery)
}
