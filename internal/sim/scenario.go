// Package sim runs a fleet as a fluid in virtual time: clients with smooth
// demand follow assignments, count what they land and report it, with delays
// both ways, while the real load table, evidence and planner decide. It has no
// clock and no randomness of its own, so a run is a function of its scenario.
package sim

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// Scenario is one run.
type Scenario struct {
	Topology *isobar.Topology
	Health   func(at time.Duration) health.Table // nil = nothing marked
	Clients  []Client

	Tick        time.Duration // between decisions
	Interval    time.Duration // between load reports of a client
	ReportDelay time.Duration // from the end of a window to its arrival
	PushDelay   time.Duration // from publishing to use and acknowledgement
	Length      time.Duration
	Step        time.Duration // resolution of the fluid; 0 = a tenth of the interval

	// Lands tells which share of what a client sends to a locality arrives, 0
	// to 1; the rest is reported as errors. nil = all.
	Lands func(c *Client, l isobar.Locality, at time.Duration) float64
}

// Client is one reporting stream.
type Client struct {
	Service  string
	Source   isobar.Locality
	Demand   func(at time.Duration) float64 // requests/s
	Phase    time.Duration                  // of its reports, below the interval
	Disobeys bool                           // sends everything to Favourite, whatever it is assigned
	Favours  isobar.Locality
	Silent   bool // reports nothing
}

// start is when every run begins; any moment will do.
var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// StartTime is the virtual time at which runs begin.
func StartTime() time.Time { return start }
