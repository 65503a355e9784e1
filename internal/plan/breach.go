package plan

import "fmt"

// breachSlack is by how much a ceiling may be exceeded, as a factor, before it
// counts: shares are rounded.
const breachSlack = 1.01

// Breaches tells what in the end is too much of a service, and worse than it
// was: localities above their ceilings, drops, no endpoint left. Localities
// without declared capacity can't tell.
func (d *ServiceDifference) Breaches() []string {
	var out []string
	was := false
	for i := range d.Localities {
		l := &d.Localities[i]
		was = was || l.Utilization.Before > 0
		if u := l.Utilization; l.Declared && u.Settled > breachSlack*l.Ceiling && u.Settled > breachSlack*u.Before {
			out = append(out, fmt.Sprintf("%s at %.1f%% of its capacity, above its ceiling of %.1f%%", l.Locality, 100*u.Settled, 100*l.Ceiling))
		}
	}
	if d.Drop.Settled > d.Drop.Before+0.001 {
		out = append(out, fmt.Sprintf("clients drop %.1f%% of the requests", 100*d.Drop.Settled))
	}
	if d.Dead && was {
		out = append(out, "no endpoint is left: clients try all of them")
	}
	return out
}

// Breaches tells the same of all services, with their names.
func (d *Difference) Breaches() []string {
	var out []string
	for i := range d.Services {
		for _, text := range d.Services[i].Breaches() {
			out = append(out, d.Services[i].Service+": "+text)
		}
	}
	return out
}
