package load

import (
	"slices"
)

// In a service whose clients have many addresses, an address from which many clients come without
// a certificate is a crowd: one process can invent all of them. Its clients do not count in the
// medians of the service. Each counts for at most twice the usual rate of others, or twice its
// own known rate, which grows slowly; see learnProof.
const (
	crowdAccounts = guardNodes // identities and addresses of a service at least
	crowdClients  = guardPeers // clients of one address, or fair of the others, that are no crowd
)

// account is an identity, or an address without one, of which streams are.
type account struct {
	streams int
	address bool

	// Of the service that is looked at; valid if of is it.
	of      *service
	flows   int
	crowded bool
}

// accounts are those of all streams.
type accounts struct {
	all      map[string]*account
	mayCrowd bool // one of them may be a crowd
}

// count relates streams to their accounts.
func (c *accounts) count(streams []*stream) {
	clear(c.all)
	c.mayCrowd = false
	for _, s := range streams {
		if s.account == "" {
			s.by = nil
			continue
		}
		a := c.all[s.account]
		if a == nil {
			a = &account{address: !s.identified}
			c.all[s.account] = a
		}
		a.streams++
		s.by = a
		c.mayCrowd = c.mayCrowd || a.address && a.streams > crowdClients
	}
	c.mayCrowd = c.mayCrowd && len(c.all) >= crowdAccounts
}

// findCrowds finds the crowds among the clients of a service.
func (c *accounts) findCrowds(svc *service) {
	svc.crowds = false
	if !c.mayCrowd {
		return
	}
	all, accounts := 0, 0
	each := func(do func(f *flow, a *account)) {
		for _, src := range svc.sources {
			for _, f := range src.flows {
				if f.busy > 0 && f.stream.by != nil {
					do(f, f.stream.by)
				}
			}
		}
	}
	each(func(_ *flow, a *account) {
		if a.of != svc {
			*a = account{streams: a.streams, address: a.address, of: svc}
			accounts++
		}
		a.flows++
		all++
	})
	if accounts < crowdAccounts {
		return
	}
	each(func(_ *flow, a *account) {
		a.crowded = a.address && a.flows > crowdClients && float64(a.flows) > fair*float64(all-a.flows)
		svc.crowds = svc.crowds || a.crowded
	})
}

// boundGrowth limits the counted load of clients in crowds and of clients without a long history,
// as of now. Newcomers and strangers have their limits already.
func (c *comparison) boundGrowth() {
	bound := func(f *flow) bool {
		return f.busy > 0 && !f.stranger && (f.junior(c.now, c.interval) && !c.waited(f) || f.ofCrowd() && !f.newcomer(c.now, c.interval))
	}
	if !slices.ContainsFunc(c.service.sources, func(src *source) bool { return slices.ContainsFunc(src.flows, bound) }) {
		return
	}
	usual := c.usual()
	if !usual.known {
		return
	}
	for _, src := range c.service.sources {
		most := alikeness * usual.of(src)
		for _, f := range src.flows {
			rate := f.window.rate()
			if rate <= most || !bound(f) {
				continue
			}
			if allowed := max(most, alikeness*usual.surge*f.proof); rate > allowed {
				f.weight, f.exceeded = min(f.weight, allowed/rate), c.now
			}
		}
	}
}

// waited reports whether a client was connected for as long as makes a long history, when it began to
// send: a batch, or a failover, makes idle clients busy.
func (c *comparison) waited(f *flow) bool {
	return f.exceeded.IsZero() && f.began.Sub(f.stream.opened) >= scale(c.interval, seniority)
}
