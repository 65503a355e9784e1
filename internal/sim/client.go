package sim

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// client is the state of one Client in a run.
type client struct {
	Client

	id       load.StreamID
	shares   []share // in use
	pending  []push  // published, not in use yet; in order
	counts   []count
	reported time.Duration // end of the last window
}

type share struct {
	locality isobar.Locality
	share    float64
}

// push is an assignment on its way to the client.
type push struct {
	due    time.Duration
	shares []share
}

// count is what landed in one locality since the last report.
type count struct {
	locality isobar.Locality
	issued   float64
	errors   float64
}

// deliver puts assignments into use that have arrived.
func (c *client) deliver(at time.Duration) {
	for len(c.pending) > 0 && c.pending[0].due <= at {
		c.shares = c.pending[0].shares
		c.pending = c.pending[1:]
	}
}

// flow lets the client send for one step.
func (c *client) flow(sc *Scenario, at, step time.Duration) {
	sent := c.Demand(at) * step.Seconds()
	if c.Disobeys {
		c.land(sc, c.Favours, sent, at)
		return
	}
	for _, s := range c.shares {
		c.land(sc, s.locality, sent*s.share, at)
	}
}

func (c *client) land(sc *Scenario, l isobar.Locality, sent float64, at time.Duration) {
	lost := 0.0
	if sc.Lands != nil {
		lost = sent * (1 - sc.Lands(&c.Client, l, at))
	}
	for i := range c.counts {
		if c.counts[i].locality == l {
			c.counts[i].issued += sent
			c.counts[i].errors += lost
			return
		}
	}
	c.counts = append(c.counts, count{locality: l, issued: sent, errors: lost})
}

// report closes the window that ends now. Counters are whole numbers; what is
// left over stays for the next window.
func (c *client) report(at time.Duration, arrived time.Time) load.Report {
	sr := load.ServiceReport{Service: c.Service, Interval: at - c.reported}
	for i := range c.counts {
		k := &c.counts[i]
		issued, errors := uint64(k.issued+1e-9), uint64(k.errors+1e-9)
		errors = min(errors, issued)
		if issued > 0 {
			sr.Localities = append(sr.Localities, load.LocalityReport{
				Locality: k.locality, Issued: issued, HasIssued: true, Succeeded: issued - errors, Errors: errors,
			})
		}
		k.issued -= float64(issued)
		k.errors -= float64(errors)
	}
	c.reported = at
	return load.Report{Arrived: arrived, Services: []load.ServiceReport{sr}}
}
