package isobar

import (
	"encoding/json"
	"time"
)

// Bounds of the settings of assignments, for whoever reads configuration.
const (
	MinOverprovisioningFactor = 100    // percent; below it, clients would leave priority 0 while all of it is healthy
	MaxOverprovisioningFactor = 10_000 // percent

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
