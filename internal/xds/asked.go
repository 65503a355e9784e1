package xds

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// Clients may subscribe to millions of names that no service has. What is asked
// with every plan must not grow with them, so an index keeps all subscriptions to
// services and, of those to other names, a few.

const (
	// unknownKept is how many services that do not exist a group lists. If more are asked for,
	// a preview that adds one of the others does not know its clients.
	unknownKept = 100
	// unknownListed bounds those of all groups together.
	unknownListed = 10_000
)

// asked is a service that streams of a group ask for, with the subscriptions to
// its assignment in all API versions and under all names.
type asked struct {
	service string
	known   bool // there is such a service
	subs    []*subscription
}

// askedServices is what the clients of a group ask for, by service. Each subscription
// knows its place in it.
type askedServices struct {
	set     *view.Set // tells which services there are, and which one a name means
	listed  map[string]*asked
	known   int      // of listed, those that exist
	sorted  []*asked // listed, by service; nil after listed changed
	missing int      // subscriptions to names of no service, listed or not
}

// at brings the index to the services of a set, of which it looks at all subscriptions
// again if they are others than before.
func (a *askedServices) at(set *view.Set, subs map[subKey]*subscription) {
	same := a.set != nil && a.set.SameServices(set)
	a.set = set
	if same {
		return
	}
	a.listed, a.known, a.sorted, a.missing = map[string]*asked{}, 0, nil, 0
	for key, sub := range subs {
		a.enter(key, sub, false)
	}
}

// enter adds a subscription. others says that there are some to the same service that
// the index leaves out: it leaves out all of one, or none.
func (a *askedServices) enter(key subKey, sub *subscription, others bool) {
	service := a.set.ServiceOf(key.name)
	known := service != "" && a.set.Has(service) // "" stands for nothing
	if !known {
		a.missing++
	}
	sub.place = 0
	entry := a.listed[service]
	if entry == nil {
		if service == "" || !known && (others || len(a.listed)-a.known >= unknownKept) {
			return
		}
		entry = &asked{service: service, known: known}
		a.listed[service], a.sorted = entry, nil
		if known {
			a.known++
		}
	}
	entry.subs = append(entry.subs, sub)
	sub.place = len(entry.subs)
}

// leave removes a subscription.
func (a *askedServices) leave(key subKey, sub *subscription) {
	service := a.set.ServiceOf(key.name)
	if !a.set.Has(service) {
		a.missing--
	}
	if sub.place == 0 {
		return
	}
	entry := a.listed[service]
	last := len(entry.subs) - 1
	entry.subs[sub.place-1] = entry.subs[last]
	entry.subs[sub.place-1].place = sub.place
	entry.subs[last] = nil
	entry.subs, sub.place = entry.subs[:last], 0
	if last > 0 {
		return
	}
	delete(a.listed, service)
	a.sorted = nil
	if entry.known {
		a.known--
	}
}

// list returns what is listed, by service.
func (a *askedServices) list() []*asked {
	if a.sorted == nil {
		a.sorted = make([]*asked, 0, len(a.listed))
		for _, entry := range a.listed {
			a.sorted = append(a.sorted, entry)
		}
		slices.SortFunc(a.sorted, func(x, y *asked) int { return strings.Compare(x.service, y.service) })
	}
	return a.sorted
}

// describe returns the subscriptions as one. The lock of their group is held.
func (a *asked) describe(from isobar.Locality) load.Subscription {
	out := load.Subscription{Source: from, Service: a.service, AckedAt: a.subs[0].ackedAt}
	for _, sub := range a.subs {
		out.Streams += sub.streams
		if sub.current != "" {
			out.Acked += sub.at(sub.current)
		}
		switch {
		case sub.ackedAt.IsZero() || out.AckedAt.IsZero():
			out.AckedAt = time.Time{}
		case sub.ackedAt.After(out.AckedAt):
			out.AckedAt = sub.ackedAt
		}
	}
	return out
}
