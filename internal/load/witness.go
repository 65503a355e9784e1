package load

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// What requests experience in a locality is told by the clients that send there: how many are in
// progress, how many fail, where they land, what the servers report. Anybody can invent clients,
// and a few invented requests that take very long, or fail, would empty a locality. So clients
// witness only as far as what they send is proven, where proven clients tell enough. Load that is
// real slows down the requests of all clients, the proven ones included. Where proven clients
// send next to nothing, or are so few that a fault of one of them would speak for all, all are
// heard: there is nobody else.
const (
	enoughWitnessed = 50.0 // requests of proven clients in a window, which tell enough
	mostWitnessed   = 0.5  // of the requests, the same
	leastWitnesses  = 3    // clients, the same
	mostOfOne       = 0.5  // of what proven clients send, that one of them may
)

// findWitnesses decides how far each client of the service is a witness, as of now.
func findWitnesses(c *comparison) {
	c.service.questioned = false
	for _, src := range c.service.sources {
		for _, f := range src.flows {
			f.witness = witness(c, f)
			c.service.questioned = c.service.questioned || f.witness < f.weight-negligible
		}
	}
}

// witness is how far a client is one, 0 to its weight.
func witness(c *comparison, f *flow) float64 {
	rate := f.window.rate()
	if rate < negligible {
		return f.weight
	}
	proven := f.proof // it follows what the client sends for as long as it stays
	switch {
	case f.stranger || f.ofCrowd():
		return 0
	case c.young(f):
		proven = f.replaces // not what it was admitted with: anybody may be
	case !f.compared:
		return f.weight // it was there before others had a history, or there is nobody to compare it with
	}
	return min(f.weight, proven/rate)
}

// voices are what clients send, and of it what witnesses do.
type voices struct {
	all, proven float64
	witnesses   int
	largest     float64 // what one witness sends at most
}

func (v *voices) add(all, proven float64) {
	v.all += all
	v.proven += proven
	if proven > 0 {
		v.witnesses++
		v.largest = max(v.largest, proven)
	}
}

// enough reports whether the witnesses suffice to judge by. The unit of what is sent is
// requests in a time.
func (v *voices) enough(window time.Duration) bool {
	return v.witnesses >= leastWitnesses && v.largest <= mostOfOne*v.proven &&
		(v.proven >= mostWitnessed*v.all && v.proven >= negligible || v.proven*window.Seconds() >= enoughWitnessed)
}

// Told is what the clients of a source tell that may be judged by.
type Told struct {
	Landed  []LandedLoad // sorted by locality
	Proven  bool         // of proven clients only, or of all, since all are proven
	clients int          // that tell it; 0 = all
}

// Told returns what to judge the experience of a source's requests by.
func (l *SourceLoad) Told() Told {
	if l.witnessed == nil {
		return Told{Landed: l.Landed, Proven: true}
	}
	if l.voices.enough(l.Window) {
		return Told{Landed: l.witnessed, Proven: true, clients: l.voices.witnesses}
	}
	return Told{Landed: l.Landed}
}

// issued is what lands, requests/s.
func (t *Told) issued() (sum float64) {
	for i := range t.Landed {
		sum += t.Landed[i].Issued
	}
	return sum
}

// errors are the requests that fail, requests/s.
func (t *Told) errors() (sum float64) {
	for i := range t.Landed {
		sum += t.Landed[i].Errors
	}
	return sum
}

// heard is what clients send to a locality, and of it what witnesses do, requests/s.
type heard struct {
	voices

	locality *isobar.Locality
}

// hear finds what clients and witnesses send where, if some of the service's clients are no witnesses.
func (o *observer) hear(svc *service) {
	o.heard = o.heard[:0]
	if !svc.questioned {
		return
	}
	for _, src := range svc.sources {
		for _, f := range src.flows {
			trust, _ := f.trust(o.now, o.interval)
			for i := range f.window.sites {
				s := &f.window.sites[i]
				o.hearing(s.locality).add(s.issued*trust*f.weight, s.issued*trust*f.witnesses())
			}
		}
	}
}

// hearing finds or makes what is heard of a locality.
func (o *observer) hearing(l *isobar.Locality) *heard {
	i, found := slices.BinarySearchFunc(o.heard, l, func(h heard, l *isobar.Locality) int { return compareLocalities(h.locality, l) })
	if !found {
		o.heard = slices.Insert(o.heard, i, heard{locality: l})
	}
	return &o.heard[i]
}

// saying is how far what a client tells of a locality counts: as far as it is a witness, where
// these tell enough.
func (o *observer) saying(f *flow, l *isobar.Locality) float64 {
	trust, _ := f.trust(o.now, o.interval)
	if len(o.heard) > 0 && o.hearing(l).enough(o.interval) {
		return trust * f.witnesses()
	}
	return trust * f.weight
}
