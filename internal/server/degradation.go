package server

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Degradation translates what is configured of missing inputs.
func Degradation(d *config.Degradation) plan.Degradation {
	return plan.Degradation{Reports: steps(d.Reports), Health: steps(d.Health), Topology: steps(d.Topology)}
}

func steps(s config.DegradationSteps) plan.Steps {
	step := func(age time.Duration) time.Duration {
		if age == config.Never {
			return plan.Forever
		}
		return age
	}
	return plan.Steps{Cautious: step(s.Cautious), Hold: step(s.Hold), Decay: step(s.Decay)}
}

// outdated lists the services whose endpoints their provider does not confirm.
func (s *Server) outdated(now time.Time) []plan.InputAge {
	old := slices.Concat(s.upstream.Outdated(), s.names.Outdated(), s.cluster.Outdated())
	out := make([]plan.InputAge, len(old))
	for i, o := range old {
		age := max(0, now.Sub(o.Since))
		out[i] = plan.InputAge{Service: o.Service, Kind: plan.InputTopology, Age: plan.Age{Some: age, Most: age}}
	}
	return out
}
