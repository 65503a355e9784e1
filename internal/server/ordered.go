package server

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/plan"
)

// orderedIn returns what operators ordered of endpoints, as the history tells it.
func orderedIn(r *discovery.Registry) func(after, upTo uint64) plan.Origin {
	return func(after, upTo uint64) plan.Origin {
		orders := r.Ordered(after, upTo)
		if len(orders) == 0 {
			return plan.Origin{}
		}
		out := plan.Origin{Trigger: plan.TriggerOperator, About: orders[0].Service}
		var who, reasons []string
		for i := range orders {
			o := &orders[i]
			if o.Service != out.About {
				out.About = "" // several services
			}
			reason := o.What
			if o.Reason != "" {
				reason += ": " + o.Reason
			}
			reasons = append(reasons, reason)
			if !slices.Contains(who, o.Who) {
				who = append(who, o.Who)
			}
		}
		out.Who, out.Reason = strings.Join(who, ", "), strings.Join(reasons, "; ")
		return out
	}
}
