package listen

import (
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
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

// Subscriptions tells who subscribes to what.
type Subscriptions interface {
	Subscribed(l isobar.Locality, service string) bool
}

// Reporters decides who may report load.
type Reporters struct {
	subscribedOnly func() bool
	subscriptions  Subscriptions
	recent         recentSubscriptions
}

// NewReporters returns the decision for clients with these subscriptions. subscribedOnly
// reports whether the configuration asks for one.
func NewReporters(subscriptions Subscriptions, subscribedOnly func() bool) *Reporters {
	return &Reporters{subscribedOnly: subscribedOnly, subscriptions: subscriptions}
}

// May reports whether clients of a locality may report on a service: on
// any, or, where it is configured, on those that someone there subscribes to.
// It need not be the same stream or connection: many clients keep one for load
// reports alone.
func (r *Reporters) May(l isobar.Locality, service string) bool {
	if !r.subscribedOnly() {
		return true
	}
	k, now := subscriber{l, service}, time.Now()
	if r.recent.has(k, now, noteEvery) {
		return true
	}
	if r.subscriptions.Subscribed(l, service) {
		r.recent.note(k, now)
		return true
	}
	return r.recent.has(k, now, subscriptionGrace+noteEvery)
}
