package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// The triggers of a change.
const (
	TriggerTick     = "tick"     // a regular decision
	TriggerHealth   = "health"   // endpoints came, went or changed their health, without a decision
	TriggerTopology = "topology" // the configuration or a service of the API changed
	TriggerOperator = "operator" // pause, resume or rollback
	TriggerRestart  = "restart"  // the first plan of a process
)

// Origin says why a plan is made, for the history.
type Origin struct {
	Trigger string // empty: told from the plan
	About   string // service that an operator spoke of; empty: all
	Who     string // of an operator
	Reason  string
}

// Change is what one plan changed of shares and drops. Immutable.
type Change struct {
	Version  uint64          `json:"version"`
	Previous uint64          `json:"previous"` // version of the plan that it followed
	Made     time.Time       `json:"made"`
	Trigger  string          `json:"trigger"`
	Who      string          `json:"who,omitempty"`
	Reason   string          `json:"reason,omitempty"` // of an operator
	About    string          `json:"about,omitempty"`  // service that an operator spoke of; empty: all
	Services []ServiceChange `json:"services"`         // sorted
}

// ServiceChange is what it changed of one service.
type ServiceChange struct {
	Service string            `json:"service"`
	Reason  string            `json:"reason"` // of the source that moved most
	Before  float64           `json:"drop_before,omitempty"`
	After   float64           `json:"drop_after,omitempty"`
	Sites   []isobar.Locality `json:"localities"` // of the shares; sorted
	Sources []SourceChange    `json:"sources"`    // that changed; sorted
}

// SourceChange is what it changed for one source, in 1/10,000 of its traffic
// and in the order of the localities.
type SourceChange struct {
	Source isobar.Locality `json:"source"`
	Before []uint16        `json:"before,omitempty"` // none: the source was not there
	After  []uint16        `json:"after,omitempty"`  // none: the source is gone
}

// Moved is the largest part of its traffic that a source of the change moved,
// as a fraction.
func (c *ServiceChange) Moved() float64 {
	most := 0.0
	for i := range c.Sources {
		most = max(most, c.Sources[i].moved())
	}
	return most
}

func (c *SourceChange) moved() float64 {
	if len(c.Before) != len(c.After) {
		return 0
	}
	sum := 0
	for i := range c.Before {
		sum += max(0, int(c.After[i])-int(c.Before[i]))
	}
	return float64(sum) / isobar.WeightScale
}

// only returns the part of a change that is about one service.
func (c *Change) only(service string) (Change, bool) {
	out := *c
	i, ok := slices.BinarySearchFunc(c.Services, service, func(s ServiceChange, n string) int { return strings.Compare(s.Service, n) })
	if ok {
		out.Services = c.Services[i : i+1]
	} else {
		out.Services = []ServiceChange{}
		ok = c.Trigger == TriggerOperator && (c.About == "" || c.About == service)
	}
	return out, ok
}

// valid reports whether a change that was read is one.
func (c *Change) valid() bool {
	for i := range c.Services {
		s := &c.Services[i]
		for j := range s.Sources {
			for _, shares := range [][]uint16{s.Sources[j].Before, s.Sources[j].After} {
				if len(shares) != 0 && len(shares) != len(s.Sites) {
					return false
				}
			}
		}
	}
	return c.Version > c.Previous
}
