package load

import "time"

// Drops affect all clients, so only proven demand raises them: the load of clients with a
// history, up to their known rate. Clients that were there before others had a history prove
// twice the rate of the others of their source. Growth that comes with failing requests may be
// retries. Proven demand stays proven for a while, also when others replace its clients.
const (
	proofSlack  = 1.25 // times the known rate of a client
	provenTimes = 24.0 // time constant with which proven demand is forgotten, intervals
	calmTimes   = 12.0 // smoothing of demand while requests fail, intervals
	impatience  = 0.1  // growth of proven demand a window while others see an overload
	fewRequests = 8.0  // of which one that fails says little: the mean of some windows does
	toldErrors  = 0.15 // of the rate, above the usual failures: so much of a client's reported failures counts
	seniority   = 120  // report intervals after which a client's load speaks for others of its account
)

// learnProof follows the counted load of a client. Once the client was compared with others, its
// proof grows by patience a report interval, or by impatience while requests of clients with a long
// history fail. It falls as that of other clients does, also while requests fail: one quiet
// window says little. For the same reason a crowded client stays crowded until its mean is
// proven, too.
func (f *flow) learnProof(pace float64) {
	counts := f.window.rate() * f.weight
	if f.stranger { // its limit is for itself, that of its account is not known yet
		counts = min(counts, (1+patience)*f.let)
	}
	if f.proof == 0 && !f.compared {
		f.proof = counts
	}
	step := (counts - f.proof) / f.experience()
	switch {
	case f.compared && f.source.service.failing && counts > f.proof:
		step = min(counts-f.proof, pace*impatience*f.proof)
	case f.compared:
		step = min(step, pace*patience*f.proof)
	}
	f.proof += step
	if max(counts, f.mean) <= proofSlack*f.proof {
		f.crowded = false // the client has claimed it for long enough
	}
}

// others is the comparison of the clients of a service at a snapshot, made at its first use.
type others struct {
	comparison

	known     *usual
	isService func(name string) bool
}

func (o *others) like() *usual {
	if o.known == nil {
		u := o.usual()
		o.known = &u
	}
	return o.known
}

// claimed adds up the load of the clients of a source, and the part of it that raises no drop.
type claimed struct {
	rest *others

	single float64 // of clients looked at one by one, requests/s

	// Of clients that came when others had a history, requests/s. They are looked at together:
	// one that sends a few requests a window sends now more, now less.
	counts, proof float64
}

// add adds a client, of which a part is trusted.
func (c *claimed) add(f *flow, trust float64) {
	if f.compared && !f.newcomer(c.rest.now, c.rest.interval) && f.busy >= guardWindows {
		c.counts += trust * f.window.rate() * f.weight
		c.proof += trust * f.proof
		return
	}
	c.single += trust * c.rest.unproven(f)
}

// unproven is how much raises no drop, requests/s.
func (c *claimed) unproven() float64 {
	if c.counts <= proofSlack*c.proof {
		return c.single
	}
	u := c.rest.like()
	if !u.known {
		return c.single
	}
	return c.single + max(0, c.counts-proofSlack*u.surge*c.proof)
}

// unproven is the part of one client's counted load that raises no drop, requests/s. The client
// has no history yet, or was there before any other had one and proves twice the usual rate. A
// client that came later does not: any client can come with small claims, and claim more later.
func (o *others) unproven(f *flow) float64 {
	counts := f.window.rate() * f.weight
	if f.newcomer(o.now, o.interval) || f.busy < guardWindows {
		return counts
	}
	if counts <= proofSlack*f.proof {
		return 0
	}
	u := o.like()
	if !u.known {
		return 0
	}
	return max(0, counts-max(proofSlack*u.surge*f.proof, alikeness*u.of(f.source)))
}

// vouched is the part of a flow's counted load that newcomers in its place prove, requests/s.
func (f *flow) vouched(now time.Time, interval time.Duration) float64 {
	counted := f.counted(now, interval)
	if f.crowded || f.junior(now, interval) {
		return min(counted, f.proof)
	}
	return counted
}

// admit limits the proof of newcomers within seniority report intervals. Those of one identity or
// address prove as much as the clients with a long history send, or the counted load of one
// newcomer. So a fleet may double under one identity. Those without a certificate, of all
// addresses together, prove a fifth of that: one attacker may have many addresses, and invents
// usual clients at each. Claims beyond that are proven at the pace of learnProof.
func (c *comparison) admit(claims []claim) {
	senior, admitted, anonymous := 0.0, map[string]float64{}, 0.0
	for _, src := range c.service.sources {
		senior += src.savedProven()
		for _, f := range src.flows {
			switch {
			case f.busy == 0 || f.stranger || f.newcomer(c.now, c.interval):
			case c.young(f):
				admitted[f.stream.account] += f.admitted
				if f.anonymous() {
					anonymous += f.admitted
				}
			default:
				senior += min(f.window.rate()*f.weight, proofSlack*f.proof)
			}
		}
	}
	for i := range claims {
		claims[i].admitted = min(claims[i].rate, claims[i].like)
	}
	by := map[string][]*claim{}
	var nameless []*claim
	for i := range claims {
		x := &claims[i]
		if account := x.flow.stream.account; account != "" {
			by[account] = append(by[account], x)
		}
		if x.flow.anonymous() {
			nameless = append(nameless, x)
		}
	}
	for account, of := range by { //isobar:sorted accounts do not depend on each other
		admitTogether(of, senior, admitted[account])
	}
	admitTogether(nameless, afew*senior, anonymous)
}

// admitTogether limits the proof of claims together with that of others: to most, or to the
// counted load of one of them.
func admitTogether(claims []*claim, most, others float64) {
	wanted := 0.0
	for _, x := range claims {
		most = max(most, x.like)
		wanted += max(0, x.admitted-x.vouched)
	}
	if left := max(0, most-others); wanted > left {
		for _, x := range claims {
			x.admitted *= left / wanted
		}
	}
}

// young reports whether a flow came when others had a history, less than seniority ago.
func (c *comparison) young(f *flow) bool {
	return f.compared && c.now.Sub(f.began) < scale(c.interval, seniority)
}

// anonymous reports whether a flow comes over the network without a certificate.
func (f *flow) anonymous() bool { return f.stream.account != "" && !f.stream.identified }

// voice is the part of a flow's proven demand that speaks for others, requests/s. For a client
// that came when others had a history, it is at most the demand that it had proven when it came.
// Patience makes its claims count, but gives it no voice.
func (f *flow) voice() float64 {
	if f.compared {
		return min(f.proof, f.joined)
	}
	return f.proof
}

// seniorsFail reports whether more requests than usual of clients with a long history fail. Load
// that is only claimed reaches no endpoint, so it makes no requests of others fail. Liars may
// have a long history, too, and claim that all their requests fail: the reported failures of one
// client are limited, so that clients with a third of all voices have to report them. Each client
// has usual failures of its own: the claims of others can't change them.
func (c *comparison) seniorsFail() bool {
	failed, all := 0.0, 0.0
	for _, src := range c.service.sources {
		for _, f := range src.flows {
			if f.busy == 0 || f.stranger || f.crowded || f.ofCrowd() || c.young(f) || f.newcomer(c.now, c.interval) {
				continue
			}
			voice := min(f.counted(c.now, c.interval), f.voice())
			failed += voice * max(-toldErrors, min(f.failing-f.fails, toldErrors))
			all += voice
		}
	}
	return failed > usualErrors*all
}
