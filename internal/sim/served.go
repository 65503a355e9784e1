package sim

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// outliers is how an Envoy leaves endpoints by the cluster that Isobar serves.
func (b *isobarLoop) outliers(c *client) Ejection {
	if !b.w.sc.Served || c.kind != dataplane.Envoy {
		return Ejection{}
	}
	return served(c.population.group.service.spec, c.limit)
}

// served is the outlier detection of the cluster of a service, with such a limit of
// requests in progress.
func served(spec *isobar.Service, limit uint32) Ejection {
	settings := spec.Limited(limit)
	o := &settings.OutlierDetection
	if o.Off {
		return Ejection{}
	}
	value := func(f isobar.OutlierField) int64 {
		v, _ := o.Effective(f, false)
		return v
	}
	out := Ejection{
		Interval: time.Duration(value(isobar.OutlierInterval)), Base: time.Duration(value(isobar.OutlierBaseEjectionTime)),
		longest: time.Duration(value(isobar.OutlierMaxEjectionTime)), served: true,
	}
	if value(isobar.OutlierEnforcingConsecutive5xx) > 0 {
		out.Consecutive = int(value(isobar.OutlierConsecutive5xx))
	}
	if value(isobar.OutlierEnforcingFailurePercentage) > 0 {
		out.failing = float64(value(isobar.OutlierFailurePercentageThreshold)) / 100
		out.volume = int(value(isobar.OutlierFailurePercentageRequestVolume))
	}
	return out
}

// reroute follows the ejections of a client, and its assignment.
func (b *isobarLoop) reroute(c *client) {
	g := c.population.group
	if c.assignment == nil {
		return
	}
	if !c.ejects() {
		c.use(g.routeOf(c.assignment, c.kind, c.population.class))
		return
	}
	s := g.service
	options := dataplane.DefaultOptions()
	options.PanicThreshold = float64(s.spec.PanicThreshold())
	a := c.assignment.Dropping(toldDrop(c.assignment, c.population.class))
	c.use(predictedWith(s, without(s, a, c), c.kind, options))
}

// without is an assignment as the workers of a client obey it that have left endpoints.
func without(s *service, a *isobar.Assignment, c *client) *isobar.Assignment {
	left := map[string]bool{}
	for e, out := range c.threads.left {
		left[s.endpoints[e].address] = out
	}
	out := *a
	out.Priorities = make([][]isobar.LocalityWeight, len(a.Priorities))
	for p := range a.Priorities {
		for _, lw := range a.Priorities[p] {
			group := *lw.EndpointGroup
			group.Endpoints = append([]isobar.WeightedEndpoint(nil), group.Endpoints...)
			for i := range group.Endpoints {
				if left[group.Endpoints[i].Address] {
					group.Endpoints[i].Health = isobar.Unhealthy
				}
			}
			lw.EndpointGroup = &group
			out.Priorities[p] = append(out.Priorities[p], lw)
		}
	}
	return &out
}
