package config

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

var overprovisioningRange = strict.Range{
	Min: isobar.MinOverprovisioningFactor, Max: isobar.MaxOverprovisioningFactor, Unit: "percent",
	ZeroHint: "leave it out for the default of 140",
}

// readAssignment reads what is set for all assignments of a service.
func readAssignment(v strict.Value) isobar.AssignmentSettings {
	var s isobar.AssignmentSettings
	lo, hi := isobar.MinAssignmentLifetime, isobar.MaxAssignmentLifetime
	v.Object([]strict.Field{
		durationField("endpoint_stale_after", lo, hi, &s.EndpointStaleAfter, nil),
		{Name: "overprovisioning_factor", Read: func(v strict.Value) {
			if f, ok := v.Int(overprovisioningRange); ok {
				s.OverprovisioningFactor = uint32(f) //nolint:gosec // within the range
			}
		}},
		boolField("weighted_priority_health", &s.WeightedPriorityHealth),
		durationField("resource_ttl", lo, hi, &s.ResourceTTL, nil),
		{Name: "drop_overloads", Elsewhere: "drops follow from the demand: give max_shed to the service"},
	})
	return s
}
