package main

import (
	"fmt"

	"github.com/isobar-xds/isobar/internal/plan"
)

// callLines tell which services call this one, as configured and as measured.
func callLines(calls []plan.CallSeen) []string {
	var out []string
	for _, c := range calls {
		configured, measured, use := "not configured", "can't tell how many it makes", ""
		if c.PerRequest > 0 {
			configured = fmt.Sprintf("%.3g per request configured", c.PerRequest)
		}
		if c.Measured > 0 {
			measured = fmt.Sprintf("%.3g measured", c.Measured)
		}
		if c.Used {
			use = "; demand is computed from what it serves"
		}
		out = append(out, fmt.Sprintf("%s: %s, %s, %.1f/s%s", c.Caller, configured, measured, c.Rate, use))
	}
	return out
}
