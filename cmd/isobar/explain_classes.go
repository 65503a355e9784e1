package main

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar/internal/plan"
)

// writeClasses tells whose requests are dropped first, in that order.
func writeClasses(line func(name, format string, args ...any), e *plan.Explanation) {
	name := "classes"
	for _, c := range slices.Backward(e.Classes) {
		who := ""
		if len(c.Clients) > 0 {
			who = ": " + printable(strings.Join(c.Clients, ", "))
		}
		line(name, "%s drops %s, at most %s; %.0f requests/s, %.0f from here%s", c.Class, percent(c.Drop), percent(c.MaxShed), c.Rate, c.Here, who)
		name = ""
	}
}
