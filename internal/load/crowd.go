package load

import (
	"slices"
)

// In a service whose clients have many addresses, an address from which many clients come without
// a certificate is a crowd: one process can invent all of them. An address of clients with a long
// history is none, though, if it was none before others came: an attacker with many addresses would
// otherwise silence a fleet that shares a few. Clients of a crowd do not count in the
// medians of the service. Each counts for at most twice the usual rate of others, or twice its
// own known rate, which grows slowly; see learnProof.
const (
	crowdAccounts = guardNodes // identities and addresses of a service at least
	crowdClients  = guardPeers // clients of one address, or fair of the others, that are no crowd
	settledVoice  = 0.75       // of the demand with a voice, that clients with a long history have to have to judge their addresses by themselves
)

// account is an identity, or an address without one, of which streams are.
type account struct {
	streams int
	address bool

	// Of the service that is looked at; valid if of is it.
	of      *service
	flows   int
	settled int // of them, those with a long history
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
func (c *accounts) findCrowds(of *comparison) {
	svc := of.service
	svc.crowds = false
	if !c.mayCrowd {
		return
	}
	each := func(do func(f *flow, a *account)) {
		for _, src := range svc.sources {
			for _, f := range src.flows {
				if f.busy > 0 && f.stream.by != nil {
					do(f, f.stream.by)
				}
			}
		}
	}
	var all, settled crowding
	each(func(f *flow, a *account) {
		if a.of != svc {
			*a = account{streams: a.streams, address: a.address, of: svc}
		}
		all.add(&a.flows, f)
		if !f.newcomer(of.now, of.interval) && !f.junior(of.now, of.interval) {
			settled.add(&a.settled, f)
		}
	})
	decides := settled.voice >= settledVoice*all.voice
	each(func(_ *flow, a *account) {
		a.crowded = a.address && all.crowd(a.flows)
		if decides && 2*a.settled > a.flows {
			a.crowded = a.crowded && settled.crowd(a.settled)
		}
		svc.crowds = svc.crowds || a.crowded
	})
}

// crowding is how the clients of a service divide among accounts.
type crowding struct {
	accounts, flows int
	voice           float64 // of their proven demand, the part that speaks for others, requests/s
}

// add counts a client; n is how many of its account were counted.
func (c *crowding) add(n *int, f *flow) {
	if *n == 0 {
		c.accounts++
	}
	*n++
	c.flows++
	c.voice += f.voice()
}

// crowd reports whether an address with so many clients is a crowd.
func (c *crowding) crowd(clients int) bool {
	return c.accounts >= crowdAccounts && clients > crowdClients && float64(clients) > fair*float64(c.flows-clients)
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
		most := alikeness * usual.counting(src)
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
