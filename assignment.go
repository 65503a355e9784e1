package isobar

import (
	"encoding/json"
	"time"
)

// WeightedEndpoint is an endpoint as clients get it.
type WeightedEndpoint struct {
	Address string       `json:"address"`
	Weight  uint32       `json:"weight"` // >= 1
	Health  HealthStatus `json:"health"`

	// Config holds the rest that clients get: the endpoint as it is configured.
	// nil where there is nothing else.
	Config *Endpoint `json:"config,omitempty"`
}

// EndpointGroup is the endpoints of one service in one locality. Groups are
// immutable and shared by all assignments of a plan.
type EndpointGroup struct {
	Locality  Locality           `json:"locality"`
	Metadata  Metadata           `json:"metadata,omitempty"`
	Endpoints []WeightedEndpoint `json:"endpoints"`
}

// Usable counts the endpoints that take traffic.
func (g *EndpointGroup) Usable() int {
	n := 0
	for i := range g.Endpoints {
		if g.Endpoints[i].Health.Usable() {
			n++
		}
	}
	return n
}

// Draining counts the endpoints that take no traffic because they are to be left alone. Those
// that fail are not among them.
func (g *EndpointGroup) Draining() int {
	n := 0
	for i := range g.Endpoints {
		if g.Endpoints[i].Health == Draining {
			n++
		}
	}
	return n
}

// LocalityWeight is one locality within a priority.
type LocalityWeight struct {
	*EndpointGroup

	Weight uint32 `json:"weight"` // >= 1; sums within a priority stay below 2^32
}

// WeightScale is the sum of the locality weights of priority 0: 1 unit is
// 1/10,000 of the source's traffic.
const WeightScale = 10_000

// Assignment is what the clients of one service in one source locality get.
// Immutable.
type Assignment struct {
	Service                string             `json:"service"`
	Source                 Locality           `json:"source"`
	Priorities             [][]LocalityWeight `json:"priorities"`              // gapless; the localities of each sorted
	Drop                   float64            `json:"drop,omitempty"`          // fraction of requests to drop at the client
	OverprovisioningFactor uint32             `json:"overprovisioning_factor"` // percent, 140 by default; health may raise it above its maximum
	// Classes is what clients drop by their class; Drop is then that of clients of
	// which nothing is said. nil = all of them drop the same.
	Classes *ClassDrops `json:"classes,omitempty"`

	// What the service's AssignmentSettings say, as far as planned shares are
	// realised with it.
	WeightedPriorityHealth bool          `json:"weighted_priority_health,omitempty"`
	EndpointStaleAfter     time.Duration `json:"endpoint_stale_after,omitempty"` // 0 = endpoints never go stale
	ResourceTTL            time.Duration `json:"resource_ttl,omitempty"`         // 0 = none; for clients that support it
}

// DropCategory is the one category under which Isobar drops.
const DropCategory = "isobar_overload"

// Share returns the fraction of the source's traffic that priority 0 sends to l.
func (a *Assignment) Share(l Locality) float64 {
	if a == nil || len(a.Priorities) == 0 {
		return 0
	}
	var sum, w uint64
	for _, lw := range a.Priorities[0] {
		sum += uint64(lw.Weight)
		if lw.Locality == l {
			w = uint64(lw.Weight)
		}
	}
	if sum == 0 {
		return 0
	}
	return float64(w) / float64(sum)
}

// Bounds of the settings of assignments, which readers of configuration check.
const (
	MinOverprovisioningFactor = 100    // percent; below it, clients would leave priority 0 while all of it is healthy
	MaxOverprovisioningFactor = 10_000 // percent, as operators may set it

	// MinAssignmentLifetime bounds EndpointStaleAfter and ResourceTTL from
	// below: what lives shorter could expire between two decisions.
	MinAssignmentLifetime = 5 * time.Second
	MaxAssignmentLifetime = 24 * time.Hour
)

// AssignmentSettings is what an operator sets for all assignments of a
// service, named as in envoy.config.endpoint.v3.ClusterLoadAssignment.Policy
// and envoy.service.discovery.v3.Resource. The zero value leaves all of it to
// the defaults of clients. Values can be compared.
type AssignmentSettings struct {
	// EndpointStaleAfter is how long clients use endpoints without hearing of
	// them again; Envoy removes them then. 0 = for ever.
	EndpointStaleAfter time.Duration
	// OverprovisioningFactor in percent is the least that is sent; it is raised
	// where planned shares would not be realised with it. 0 = 140.
	OverprovisioningFactor uint32
	// WeightedPriorityHealth makes Envoy count the weights of endpoints in place
	// of endpoints when it works out how healthy a priority is.
	WeightedPriorityHealth bool
	// ResourceTTL is how long clients keep the assignment without a heartbeat.
	// 0 = for ever.
	ResourceTTL time.Duration
}

// assignmentSettingsJSON is AssignmentSettings as configuration has them.
type assignmentSettingsJSON struct {
	EndpointStaleAfter     durationJSON `json:"endpoint_stale_after,omitempty"`
	OverprovisioningFactor uint32       `json:"overprovisioning_factor,omitempty"`
	WeightedPriorityHealth bool         `json:"weighted_priority_health,omitempty"`
	ResourceTTL            durationJSON `json:"resource_ttl,omitempty"`
}

// MarshalJSON writes the settings as configuration has them.
func (s AssignmentSettings) MarshalJSON() ([]byte, error) {
	return json.Marshal(assignmentSettingsJSON{
		EndpointStaleAfter: durationJSON(s.EndpointStaleAfter), OverprovisioningFactor: s.OverprovisioningFactor,
		WeightedPriorityHealth: s.WeightedPriorityHealth, ResourceTTL: durationJSON(s.ResourceTTL),
	})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (s *AssignmentSettings) UnmarshalJSON(b []byte) error {
	var j assignmentSettingsJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*s = AssignmentSettings{
		EndpointStaleAfter: time.Duration(j.EndpointStaleAfter), OverprovisioningFactor: j.OverprovisioningFactor,
		WeightedPriorityHealth: j.WeightedPriorityHealth, ResourceTTL: time.Duration(j.ResourceTTL),
	}
	return nil
}
