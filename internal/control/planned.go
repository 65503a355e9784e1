package control

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/xds"
)

// sorted orders subscriptions by service, then source.
func sorted(subscriptions []xds.Subscription) []xds.Subscription {
	slices.SortFunc(subscriptions, func(a, b xds.Subscription) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), a.Locality.Compare(b.Locality))
	})
	return subscriptions
}

// plannedSources tells the evidence what each source of a service should be
// doing, and since when enough of its streams obey.
func plannedSources(s *plan.Service, subs []xds.Subscription) []load.PlannedSource {
	from, _ := slices.BinarySearchFunc(subs, s.Spec.Name, func(x xds.Subscription, n string) int { return strings.Compare(x.Service, n) })
	subs = subs[from:]
	out := make([]load.PlannedSource, 0, len(s.Result.Sources))
	for i := range s.Result.Sources {
		r := &s.Result.Sources[i]
		ps := load.PlannedSource{Source: r.Source}
		for l, share := range r.Shares {
			if share > 0 {
				ps.Shares = append(ps.Shares, load.PlannedShare{Locality: s.Sites[l].Group.Locality, Share: share})
			}
		}
		// Both lists are sorted by source.
		for len(subs) > 0 && subs[0].Service == s.Spec.Name && subs[0].Locality.Compare(r.Source) < 0 {
			subs = subs[1:]
		}
		if len(subs) > 0 && subs[0].Service == s.Spec.Name && subs[0].Locality == r.Source {
			ps.Streams, ps.Acked = subs[0].Streams, subs[0].AckedAt
		}
		out = append(out, ps)
	}
	return out
}

// subscribed lists who watches what.
func subscribed(subs []xds.Subscription) []plan.Subscription {
	out := make([]plan.Subscription, len(subs))
	for i := range subs {
		out[i] = plan.Subscription{Service: subs[i].Service, Source: subs[i].Locality}
	}
	return slices.Compact(out)
}

func orDefault(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}
