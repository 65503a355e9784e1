package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// CallSeen is one service calling another, as configured and as measured.
type CallSeen struct {
	Caller     string  `json:"caller"`
	PerRequest float64 `json:"per_request"` // as configured; 0 = not configured
	Measured   float64 `json:"measured"`    // calls per request that the caller serves; 0 = can't tell
	Rate       float64 `json:"rate"`        // of the calls, requests/s
	Used       bool    `json:"used"`        // the demand of the calls is computed from what the caller serves
}

// callRate is the rate from which on calls are worth a ratio, requests/s.
const callRate = 1

// callsTo lists who calls a service: clients whose node.cluster is a service of
// the plan, and who is configured to, in the order of services.
func callsTo(p *Plan, s *Service) []CallSeen {
	rates := map[string]float64{}
	if s.Load != nil {
		for i := range s.Load.Sources {
			for _, c := range s.Load.Sources[i].Clients {
				rates[c.Name] += c.Rate
			}
		}
	}
	out := []CallSeen{}
	for _, from := range p.Services {
		c := CallSeen{Caller: from.Spec.Name, Rate: rates[from.Spec.Name]}
		for _, call := range from.Spec.Calls {
			if call.Service == s.Spec.Name {
				c.PerRequest = call.PerRequest
			}
		}
		if from == s || (c.PerRequest == 0 && c.Rate < callRate) {
			continue
		}
		if served := landed(from.Load); served >= callRate && c.Rate >= callRate {
			c.Measured = c.Rate / served
		}
		c.Used = c.PerRequest > 0 && slices.Contains(s.Callers, c.Caller)
		out = append(out, c)
	}
	return out
}

// landed is what was measured to land at a service, requests/s.
func landed(l *load.ServiceLoad) float64 {
	sum := 0.0
	if l != nil {
		for i := range l.Sites {
			sum += l.Sites[i].Issued
		}
	}
	return sum
}

// offRatio is how far calls per request may be from the configured ratio before
// explain warns, as a fraction of it.
const offRatio = 0.2

// callWarnings suggest calls that are only observed, and tell of ratios that do
// not hold.
func (e *explainer) callWarnings() []string {
	var out []string
	name := e.s.Spec.Name
	for _, c := range callsTo(e.plan, e.s) {
		switch {
		case c.PerRequest == 0 && c.Measured > 0:
			out = append(out, fmt.Sprintf("%s calls %s, %.2g times per request: to have both solved together, give %s calls: [{service: %s, per_request: %.2g}]",
				c.Caller, name, c.Measured, c.Caller, name, c.Measured))
		case c.PerRequest > 0 && !c.Used:
			out = append(out, fmt.Sprintf("the calls from %s are not solved together with it: the measured demand counts (%s)", c.Caller, e.whyAlone()))
		case c.Measured > 0 && math.Abs(c.Measured-c.PerRequest) > offRatio*c.PerRequest:
			out = append(out, fmt.Sprintf("%s makes %.2g calls per request, not %g: correct per_request", c.Caller, c.Measured, c.PerRequest))
		}
	}
	return out
}

func (e *explainer) whyAlone() string {
	if e.s.Spec.Isolation != isobar.IsolationNone || len(e.s.Spec.Residency) > 0 {
		return "isolation or residency do not let all callers use all localities"
	}
	if e.s.Alone {
		return fmt.Sprintf("services that calls connect have more than %d localities together, or call each other in a circle", maxGroup)
	}
	return "no demand of the caller is reported"
}
