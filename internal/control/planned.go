package control

import (
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/xds"
)

// watched tells the planner who watches what.
func watched(subscriptions []xds.Subscription) []plan.Watched {
	out := make([]plan.Watched, len(subscriptions))
	for i := range subscriptions {
		s := &subscriptions[i]
		out[i] = plan.Watched{Service: s.Service, Source: s.Locality, Streams: s.Streams, Acked: s.AckedAt}
	}
	return out
}

func orDefault(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}
