package config

import (
	"time"

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
	v.Object([]strict.Field{
		lifetimeField("endpoint_stale_after", &s.EndpointStaleAfter),
		{Name: "overprovisioning_factor", Read: func(v strict.Value) {
			if f, ok := v.Int(overprovisioningRange); ok {
				s.OverprovisioningFactor = uint32(f) //nolint:gosec // within the range
			}
		}},
		boolField("weighted_priority_health", &s.WeightedPriorityHealth),
		lifetimeField("resource_ttl", &s.ResourceTTL),
		{Name: "drop_overloads", Elsewhere: "drops follow from the demand: give max_shed to the service"},
	})
	return s
}

// longestAbsence is a restart of Isobar and the longest pause that Envoy makes
// before it tries to connect again, which is 20 s.
const longestAbsence = 30 * time.Second

// longestAbsenceOfGroup is how long a group of replicas that has lost all its plans waits for
// clients to report before it answers those that come back, and some time to connect.
const longestAbsenceOfGroup = 2 * time.Minute

// checkLifetimes reports assignments that outlast the restart of a server, but not that of a
// group. at is where the group stands.
func checkLifetimes(at *strict.Value, services []isobar.Service) {
	for i := range services {
		s := &services[i]
		for _, x := range []struct {
			field string
			set   time.Duration
		}{{"endpoint_stale_after", s.Assignment.EndpointStaleAfter}, {"resource_ttl", s.Assignment.ResourceTTL}} {
			if x.set >= longestAbsence && x.set < longestAbsenceOfGroup {
				at.Warnf("write 2m or more", "%s %s of service %q is shorter than a group that has lost all its disks may take until it answers clients that come back: "+
					"clients would lose working endpoints", x.field, x.set, s.Name)
			}
		}
	}
}

// lifetimeField is how long clients use an assignment without a word of the
// server.
func lifetimeField(name string, into *time.Duration) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		durationField(name, isobar.MinAssignmentLifetime, isobar.MaxAssignmentLifetime, into, nil).Read(v)
		if *into > 0 && *into < longestAbsence {
			v.Warnf("write 30s or more", "%s %s is shorter than a restart of Isobar plus Envoy's pause before it reconnects (up to 20 s): "+
				"clients would lose working endpoints", name, *into)
		}
	}}
}
