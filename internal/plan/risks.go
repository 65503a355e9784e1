package plan

import (
	"fmt"

	"github.com/isobar-xds/isobar"
)

// Risk is a reason to think again before a change is made.
type Risk struct {
	Service  string          `json:"service"`
	Locality isobar.Locality `json:"locality,omitzero"`
	Text     string          `json:"text"` // a sentence that names both
}

// riskSlack is by how much utilization may be above a ceiling, or above what it was,
// without a word: it is rounding.
const riskSlack = 0.005

// risks lists what a change makes worse of a service: load above a ceiling after the
// first tick or in the end, more drops, and no endpoint left.
func (d *ServiceDifference) risks() []Risk {
	var out []Risk
	note := func(l isobar.Locality, format string, args ...any) {
		out = append(out, Risk{d.Service, l, d.Service + ": " + fmt.Sprintf(format, args...)})
	}
	if d.Dead {
		note(isobar.Locality{}, "no healthy endpoint is left")
	}
	if d.Change == ChangeRemoved && d.Latency.Before > 0 {
		note(isobar.Locality{}, "it is removed while clients send to it")
	}
	if most := max(d.Drop.First, d.Drop.Settled); most > d.Drop.Before+riskSlack {
		note(isobar.Locality{}, "clients drop up to %.1f%% of their requests, %.1f%% now", 100*most, 100*d.Drop.Before)
	}
	for i := range d.Localities {
		l := &d.Localities[i]
		if !l.Declared {
			continue
		}
		worse := func(v float64) bool { return v > l.Ceiling+riskSlack && v > l.Utilization.Before+riskSlack }
		above := fmt.Sprintf("above its ceiling of %.0f%%; %.1f%% now", 100*l.Ceiling, 100*l.Utilization.Before)
		switch u := l.Utilization; {
		case worse(u.First) && worse(u.Settled):
			note(l.Locality, "%s is used to %s, %s", l.Locality, bothTimes(fmt.Sprintf("%.1f%%", 100*u.First), fmt.Sprintf("%.1f%%", 100*u.Settled)), above)
		case worse(u.First):
			note(l.Locality, "%s is used to %.1f%% after the first tick, %s", l.Locality, 100*u.First, above)
		case worse(u.Settled):
			note(l.Locality, "%s is used to %.1f%% when all has settled, %s", l.Locality, 100*u.Settled, above)
		}
	}
	return out
}

// bothTimes says what a number is after the first tick and when all has settled.
func bothTimes(first, settled string) string {
	if first == settled {
		return first + " after the first tick and later"
	}
	return first + " after the first tick and " + settled + " when all has settled"
}
