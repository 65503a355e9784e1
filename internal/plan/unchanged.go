package plan

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// concernsNot reports whether a reapplication leaves a service as it is: same
// configuration, same health, nobody new who watches it. A change of one
// service must not cost the work of all.
func (in *Input) concernsNot(spec *isobar.Service, prev *Service) bool {
	return in.Trigger == assign.Reapply && !in.restoring && in.Load == nil && prev != nil && prev.Result != nil &&
		in.Previous.Topology.Network == in.Topology.Network &&
		sameSpec(prev.Spec, spec) && in.samePause(prev) && in.sameHealth(spec, prev) && in.knowsWatchers(prev)
}

// sameSpec tells by identity of the parts, which are immutable.
func sameSpec(a, b *isobar.Service) bool {
	return a == b || (a.Name == b.Name && a.Mode == b.Mode && a.Promote == b.Promote && a.Policy == b.Policy && a.Isolation == b.Isolation &&
		identical(a.Residency, b.Residency) && a.FailoverThreshold == b.FailoverThreshold && a.MaxShift == b.MaxShift && a.MaxShed == b.MaxShed &&
		a.Criticality.Equal(b.Criticality) &&
		a.ServiceTimeMS == b.ServiceTimeMS && a.ErrorCostMS == b.ErrorCostMS && a.CapacityTrust == b.CapacityTrust && a.ORCA == b.ORCA &&
		a.Checkers == b.Checkers && a.Assignment == b.Assignment && a.SameCluster(&b.ClusterSettings) &&
		identical(a.Localities, b.Localities) && identical(a.Calls, b.Calls) && identical(a.Limits, b.Limits) && identical(a.HealthChecks, b.HealthChecks))
}

// identical reports whether two slices are the same memory.
func identical[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (in *Input) samePause(prev *Service) bool {
	pause, paused := in.Paused.For(prev.Spec.Name)
	return samePause(prev.Paused, pause, paused)
}

func (in *Input) sameHealth(spec *isobar.Service, prev *Service) bool {
	known := in.Health.Of(spec.Name)
	for i := range spec.Localities {
		if in.Health.Drained(spec.Name, spec.Localities[i].Locality) != prev.Sites[i].Drained {
			return false
		}
		endpoints := spec.Localities[i].Endpoints
		for j := range endpoints {
			if known.Status(&endpoints[j]) != prev.Sites[i].Group.Endpoints[j].Health {
				return false
			}
		}
	}
	return true
}

// knowsWatchers reports whether every source that watches has its result.
func (in *Input) knowsWatchers(prev *Service) bool {
	from, _ := slices.BinarySearchFunc(in.Subscribed, prev.Spec.Name, func(s load.Subscription, n string) int { return strings.Compare(s.Service, n) })
	for _, s := range in.Subscribed[from:] {
		if s.Service != prev.Spec.Name {
			break
		}
		if prev.Result.Source(s.Source) == nil {
			return false
		}
	}
	return true
}
