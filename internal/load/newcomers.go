package load

import (
	"cmp"
	"slices"
)

// Newcomers are flows without a history. If others have one, a newcomer counts for the plausible
// rate of a client: twice the median of the others of its source, or a twentieth of the service.
// The same limit holds for all newcomers of one identity or address together. Newcomers may also
// send the load that a source's known clients no longer send: clients are replaced, and then all
// clients are new. A newcomer that claims more stays doubted, and its counted load grows by
// patience a window.
const (
	introduction  = 12.0 // report intervals in which a client has no history
	foundation    = 3.0  // report intervals from the first client of a service on, in which no client is a newcomer
	guardPeers    = 3    // clients to compare with; fewer say nothing
	enoughSeniors = 0.25 // of the demand with a voice, that clients with a long history have to have to speak for all
	majority      = 3.0  // addresses and identities without a long history for each client with one, from which on those are no measure
	replacedTimes = 12.0 // time constant with which the load of known clients is forgotten, intervals
)

// boundNewcomers limits the counted load of newcomers of the service. Calling it again at the
// same time changes nothing.
func (c *comparison) boundNewcomers() {
	svc := c.service
	var claims []claim
	crowded := false
	for _, src := range svc.sources {
		for _, f := range src.flows {
			crowded = crowded || f.crowded
			if f.busy > 0 && (f.stranger || f.newcomer(c.now, c.interval)) {
				f.weight = 1
				claims = append(claims, claim{flow: f, rate: f.window.rate()})
			}
		}
	}
	svc.failing = crowded && c.seniorsFail()
	if len(claims) == 0 {
		return
	}
	usual := c.usual()
	if !usual.known {
		return
	}
	size := svc.capacity
	if known := svc.standing(); known > size {
		size = known
	}
	for i := range claims {
		x := &claims[i]
		x.like, x.usual = alikeness*usual.of(x.flow.source), alikeness*usual.counting(x.flow.source)
		x.most = max(x.usual, fair*size)
		if x.flow.stranger {
			x.most = max(x.most, min(x.flow.limit, x.flow.mean*usual.growth))
		}
		x.counts = min(x.rate, x.most)
	}
	boundAccounts(claims)
	boundUnlike(claims, afew*size)
	c.replace(claims)
	c.admit(claims)
	for i := range claims {
		claims[i].settle()
	}
}

// claim is the reported load of a newcomer, requests/s.
type claim struct {
	flow         *flow
	rate         float64
	like         float64 // the plausible load of a client of the source, by those with a history
	usual        float64 // the same by most clients
	granted      float64 // the load that it may send instead of others
	vouched      float64 // of it, the part that may raise drops, because they had proven it
	most, counts float64
	admitted     float64 // of like, the part that may raise drops, beyond vouched
}

// settle makes a claim count. A newcomer that claims more than any other client sends, and is no
// replacement, stays doubted afterwards.
func (c *claim) settle() {
	f := c.flow
	c.counts = max(c.counts, c.granted)
	f.let = c.counts
	if !f.stranger && (c.rate >= negligible || !f.compared) { // a window without requests says nothing
		most := min(c.rate, c.like)
		f.compared, f.admitted, f.replaces = true, c.admitted, c.vouched
		f.proof = max(c.vouched, c.admitted, patience*most) // from 0 it would not grow
		f.joined, f.crowded = f.proof, f.proof < most
	}
	if c.counts >= c.rate {
		f.limit, f.stranger = 0, false
		return
	}
	f.weight = c.counts / c.rate
	if c.rate > c.most {
		f.limit, f.stranger = max(c.most, c.counts), true
		f.mean = min(f.mean, f.limit)
	}
}

// usual compares clients with a long history, where these have proven enough of the
// demand, else all with a history. Where only demand is remembered, as after a restart or
// when all clients are replaced at once, it compares all.
func (c *comparison) usual() usual {
	known := func(f *flow) bool { return !f.newcomer(c.now, c.interval) }
	var u usual
	if juniors := c.voiceOf(func(f *flow) bool { return f.junior(c.now, c.interval) }); juniors > 0 {
		u = c.medians(func(f *flow) bool { return known(f) && !f.junior(c.now, c.interval) })
		all := c.voiceOf(known)
		u.known = u.known && all-juniors >= enoughSeniors*all
	}
	if !u.known {
		u = c.medians(known)
	}
	if !u.known && c.service.standing() >= negligible {
		return c.medians(func(*flow) bool { return true })
	}
	u.newer = c.newer()
	return u
}

// newer is the median load of the identities and addresses without a long history, requests/s, if
// they are so many that the clients with one are no measure: a few clients that hardly send
// anything come before a fleet, as in a rollout. 0 = they are not. It makes load count, up to twice a known
// capacity of the service, and proves nothing.
func (c *comparison) newer() float64 {
	old, accounts := 0, map[string]float64{}
	var loads []float64
	for _, src := range c.service.sources {
		for _, f := range src.flows {
			trust, _ := f.trust(c.now, c.interval)
			rate := f.window.rate()
			switch {
			case f.busy == 0 || trust <= 0 || rate < negligible:
			case !f.stranger && !f.newcomer(c.now, c.interval) && !f.junior(c.now, c.interval):
				old++
			case f.stream.account == "":
				loads = append(loads, rate)
			default:
				accounts[f.stream.account] += rate
			}
		}
	}
	for _, load := range accounts { //isobar:sorted the median sorts them
		loads = append(loads, load)
	}
	if float64(len(loads)) < majority*float64(max(guardPeers, old)) {
		return 0
	}
	usual := median(loads)
	if most := c.service.capacity / float64(len(loads)); most > 0 {
		usual = min(usual, most)
	}
	return usual
}

// voiceOf is the proven demand of flows of the service that speaks for others, requests/s.
func (c *comparison) voiceOf(which func(*flow) bool) (sum float64) {
	for _, src := range c.service.sources {
		for _, f := range src.flows {
			if f.busy > 0 && !f.stranger && !f.ofCrowd() && which(f) {
				sum += f.voice()
			}
		}
	}
	return sum
}

// usual is the usual rate of clients.
type usual struct {
	known      bool    // there are enough to tell
	everywhere float64 // median of their rates, requests/s
	sources    map[*source]float64
	growth     float64 // median of their rates over their own means, at least 1
	newer      float64 // see comparison.newer
	surge      float64 // by which a fifth of the proven demand that speaks for others grew, or more; at least 1
}

// of returns the usual rate in a source.
func (u *usual) of(src *source) float64 {
	if v, ok := u.sources[src]; ok {
		return v
	}
	return u.everywhere
}

// counting returns the load up to which a client of a source counts as a usual one.
func (u *usual) counting(src *source) float64 { return max(u.of(src), u.newer) }

func (c *comparison) medians(which func(*flow) bool) usual {
	u := usual{sources: map[*source]float64{}}
	var rates, growths []float64
	var surges []growth
	for _, src := range c.service.sources {
		first := len(rates)
		for _, f := range src.flows {
			if f.busy == 0 || f.stranger || f.ofCrowd() || !which(f) {
				continue
			}
			if trust, _ := f.trust(c.now, c.interval); trust <= 0 {
				continue
			}
			if rate := f.window.rate(); rate >= negligible { // many send less than a request a window
				rates = append(rates, rate)
			}
			if f.mean >= negligible {
				growths = append(growths, f.window.rate()/f.mean)
			}
			if f.proof >= negligible && !f.crowded {
				surges = append(surges, growth{by: f.window.rate() * f.weight / f.proof, of: f.voice()})
			}
		}
		if len(rates)-first >= guardPeers {
			u.sources[src] = median(slices.Clone(rates[first:]))
		}
	}
	if u.known = len(rates) >= guardPeers; u.known {
		u.everywhere = median(rates)
		u.growth = max(1, median(growths))
		u.surge = max(1, surge(surges))
	}
	return u
}

// growth is by how much proven demand grew.
type growth struct{ by, of float64 }

// surge is the growth that a fifth of the demand has at least. Fewer clients could say
// anything.
func surge(all []growth) float64 {
	slices.SortFunc(all, func(a, b growth) int { return cmp.Compare(b.by, a.by) })
	rest := 0.0
	for _, g := range all {
		rest += afew * g.of
	}
	for _, g := range all {
		if rest -= g.of; rest <= 0 {
			return g.by
		}
	}
	return 1
}

// boundAccounts limits the counted load of the newcomers of one identity or address together.
func boundAccounts(claims []claim) {
	most, sums := map[string]float64{}, map[string]float64{}
	for i := range claims {
		account := claims[i].flow.stream.account
		most[account] = max(most[account], claims[i].most)
		sums[account] += claims[i].counts
	}
	for i := range claims {
		account := claims[i].flow.stream.account
		if account != "" && sums[account] > most[account] {
			claims[i].counts *= most[account] / sums[account]
		}
	}
}

// boundUnlike limits the counted load of all newcomers together that are unlike any other client.
func boundUnlike(claims []claim, most float64) {
	sum := 0.0
	for i := range claims {
		sum += max(0, claims[i].counts-claims[i].usual)
	}
	if sum <= most {
		return
	}
	for i := range claims {
		if c := &claims[i]; c.counts > c.usual {
			c.counts = c.usual + (c.counts-c.usual)*most/sum
		}
	}
}

// replace grants newcomers the load that known clients no longer send, and the proven part of it:
// first that of clients of the same source, then of all, because clients elsewhere take over in a
// failover. Otherwise names that leave, and return as others, would prove their mere claims.
func (c *comparison) replace(claims []claim) {
	svc := c.service
	left, proven := svc.known, svc.vouched
	all := make([]*claim, len(claims))
	for i := range claims {
		all[i] = &claims[i]
	}
	for _, src := range svc.sources {
		var mine []*claim
		for _, x := range all {
			if x.flow.source == src {
				mine = append(mine, x)
			}
		}
		counted, vouched := c.present(src)
		grant(mine, max(src.standing, src.saved)-counted, max(src.vouched, src.savedProven())-vouched)
		left, proven = left-counted, proven-vouched
		for _, x := range mine {
			left, proven = left-x.granted, proven-x.vouched
		}
	}
	grant(all, left, proven)
}

// present is the load of the known clients of a source, and the load that no others can prove
// because of them, requests/s: names that stop reporting once they are known leave nothing to the
// next ones.
func (c *comparison) present(src *source) (counted, vouched float64) {
	for _, f := range src.flows {
		if f.stranger || f.newcomer(c.now, c.interval) {
			continue
		}
		counted += f.counted(c.now, c.interval)
		if trust, _ := f.trust(c.now, c.interval); c.young(f) {
			vouched += trust * f.proof
		} else {
			vouched += f.vouched(c.now, c.interval)
		}
	}
	return counted, vouched
}

// grant divides the remaining load among claims, the smallest first, so that a large claim gets
// only the remainder.
func grant(claims []*claim, left, proven float64) {
	slices.SortStableFunc(claims, func(a, b *claim) int { return cmp.Compare(a.rate-a.granted, b.rate-b.granted) })
	for i, x := range claims {
		rest := float64(len(claims) - i)
		more := min(x.rate-x.granted, max(0, left)/rest)
		x.granted += more
		vouched := max(0, min(x.granted-x.vouched, max(0, proven)/rest))
		x.vouched += vouched
		left, proven = left-more, proven-vouched
	}
}
