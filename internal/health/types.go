package health

import (
	"fmt"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// Checker is a connected process that probes endpoints and reports on them.
type Checker struct {
	// ID is stable over reconnects of one checker and unique among those that
	// are connected: its node id where that is unique.
	ID       string          `json:"id"`
	NodeID   string          `json:"node_id"`
	Locality isobar.Locality `json:"locality"`
	// Protocols it can probe with, and the ways to designate checks to it.
	Protocols Protocols `json:"protocols"`
	// MaxEndpoints bounds the number of designated endpoints, each counted once for each check of
	// its service; 0 = no bound but that of [Limits].
	MaxEndpoints int `json:"max_endpoints,omitempty"`
	// Since is when its present stream opened: its reports on an earlier stream are forgotten,
	// because it may have restarted in between.
	Since time.Time `json:"since"`
	// LastSeen is when its last message arrived, also one without statuses.
	LastSeen time.Time `json:"last_seen"`
}

// Zone is the checker's failure domain.
func (c *Checker) Zone() isobar.Locality { return c.Locality.ZoneOnly() }

// Protocols is a set of protocols; the zero value is empty. It may hold the ways to designate
// checks, too: see [SpeaksV2].
type Protocols uint8

// ProtocolsOf makes a set.
func ProtocolsOf(list ...isobar.CheckProtocol) Protocols {
	var p Protocols
	for _, c := range list {
		p |= 1 << (c & 7)
	}
	return p
}

// Has reports whether all of other are in p.
func (p Protocols) Has(other Protocols) bool { return p&other == other }

// List returns the protocols in the set, in order.
func (p Protocols) List() []isobar.CheckProtocol {
	var out []isobar.CheckProtocol
	for c := isobar.CheckHTTP; c <= isobar.CheckRedis; c++ {
		if p.Has(ProtocolsOf(c)) {
			out = append(out, c)
		}
	}
	return out
}

// String returns the names, separated by "+".
func (p Protocols) String() string {
	var names []string
	for _, c := range p.List() {
		names = append(names, c.String())
	}
	return strings.Join(names, "+")
}

// MarshalText returns the names, for JSON.
func (p Protocols) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *Protocols) UnmarshalText(b []byte) error {
	*p = 0
	if len(b) == 0 {
		return nil
	}
	for name := range strings.SplitSeq(string(b), "+") {
		c, err := isobar.ParseCheckProtocol(name)
		if err != nil {
			return fmt.Errorf("protocols %q: %w", b, err)
		}
		*p |= ProtocolsOf(c)
	}
	return nil
}

// Report is one checker's result for one endpoint.
type Report struct {
	Checker  string              `json:"checker"` // Checker.ID
	Service  string              `json:"service"`
	Locality isobar.Locality     `json:"locality"` // of the endpoint, as the report names it
	Address  string              `json:"address"`  // the endpoint's, not the one that is probed in its place
	Status   isobar.HealthStatus `json:"status"`
	Arrived  time.Time           `json:"arrived"`
}

// Designation is the list of endpoints that one checker is to probe.
type Designation struct {
	Checker   string `json:"checker"`   // Checker.ID
	Endpoints []Key  `json:"endpoints"` // sorted, unique; immutable
}

// Placement says which checkers probe which endpoints. It is immutable.
type Placement struct {
	// Designations of every checker that was known, also of those that have
	// nothing to probe; sorted by checker.
	Designations []Designation `json:"designations"`
	// Shortfalls lists the endpoints that got fewer checkers than their service asks for, sorted
	// by endpoint.
	Shortfalls []Shortfall `json:"shortfalls,omitempty"`
}

// Shortfall says that an endpoint has fewer checkers, or in fewer failure
// domains, than its service asks for.
type Shortfall struct {
	Key

	Checkers int    `json:"checkers"` // designated
	Domains  int    `json:"domains"`  // zones of these checkers
	Want     int    `json:"want"`     // checkers
	Spread   int    `json:"spread"`   // configured number of failure domains
	Why      string `json:"why"`
}

// Verdict is the decision on one endpoint, and its reason.
type Verdict struct {
	Key

	Locality isobar.Locality `json:"locality"`
	// Status is the decided status; Unknown when there is no verdict yet: the configured status
	// counts then, unless Pending.
	Status isobar.HealthStatus `json:"status"`
	Since  time.Time           `json:"since,omitzero"` // of the status
	// Confirmed is the time at which enough fresh votes last agreed with the status.
	Confirmed time.Time `json:"confirmed,omitzero"`
	Why       string    `json:"why"`
	Votes     []Vote    `json:"votes"` // of the designated checkers, sorted by checker

	Frozen   bool `json:"frozen,omitempty"`    // too few fresh votes agree to confirm or change it
	Divided  bool `json:"divided,omitempty"`   // checkers have disagreed for long: a problem on the path from Zones
	Pending  bool `json:"pending,omitempty"`   // new, gets no traffic until its first verdict or a deadline
	Held     bool `json:"held,omitempty"`      // voted down, but held as part of a mass failure
	FailOpen bool `json:"fail_open,omitempty"` // the whole service is voted down: clients may still use it
	// Zones of the checkers that see it down, if Divided.
	Zones []isobar.Locality `json:"zones,omitempty"`
}

// Vote is the last vote of one designated checker on an endpoint.
type Vote struct {
	Checker string              `json:"checker"`
	Zone    isobar.Locality     `json:"zone"`
	Status  isobar.HealthStatus `json:"status"`         // Unknown: nothing said yet
	Since   time.Time           `json:"since,omitzero"` // time of its first vote with this status
	Heard   time.Time           `json:"heard,omitzero"` // time of its last vote
	Fresh   bool                `json:"fresh"`
	// Counts is false for a fresh vote that does not count: UNHEALTHY from a checker that has never
	// seen the endpoint healthy, and may not have probed it often enough yet.
	Counts bool `json:"counts"`
	// Metadata is the checker's metadata as JSON text, bounded; for display only. The stream
	// layer fills it in: a [VerdictTable] does not know it.
	Metadata string `json:"metadata,omitempty"`
}
