package xds

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// asked is a service that streams of a zone ask for, with the subscriptions to
// its assignment in all forms and under all names.
type asked struct {
	service string
	subs    []*subscription
}

// services lists what the zone's streams ask for, by service. The lock is held.
// It is asked for with every plan and changes when clients come and go.
func (z *localityGroup) services() []asked {
	if z.asked != nil {
		return z.asked
	}
	out := make([]asked, 0, len(z.subs))
	for key, sub := range z.subs {
		if service := resource.ServiceOf(resource.Endpoints, key.name); service != "" { // others stand for nothing
			out = append(out, asked{service, []*subscription{sub}})
		}
	}
	slices.SortFunc(out, func(a, b asked) int { return strings.Compare(a.service, b.service) })
	joined := out[:0]
	for _, a := range out {
		if n := len(joined); n > 0 && joined[n-1].service == a.service {
			joined[n-1].subs = append(joined[n-1].subs, a.subs...)
			continue
		}
		joined = append(joined, a)
	}
	z.asked = joined
	return joined
}

// describe appends the zone's subscriptions by service. The clients of a service
// have what is published when those of every form have it.
func (z *localityGroup) describe(out []Subscription) []Subscription {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, a := range z.services() {
		d := Subscription{Locality: z.locality, Service: a.service, AckedAt: a.subs[0].ackedAt}
		for _, sub := range a.subs {
			d.Streams += sub.streams
			if sub.current != "" {
				d.Acked += sub.acked[sub.current]
			}
			switch {
			case sub.ackedAt.IsZero() || d.AckedAt.IsZero():
				d.AckedAt = time.Time{}
			case sub.ackedAt.After(d.AckedAt):
				d.AckedAt = sub.ackedAt
			}
		}
		out = append(out, d)
	}
	return out
}
