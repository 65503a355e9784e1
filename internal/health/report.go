package health

import "github.com/isobar-xds/isobar"

// ServiceReport describes the health of one service.
type ServiceReport struct {
	Service    string            `json:"service"`
	Summary    Summary           `json:"summary"`
	Endpoints  []Verdict         `json:"endpoints"`            // sorted by address
	Drained    []isobar.Locality `json:"drained,omitempty"`    // too few endpoints are healthy
	Alarm      *Alarm            `json:"alarm,omitempty"`      // checkers voted down so many endpoints at once that Isobar holds the verdicts
	Shortfalls []Shortfall       `json:"shortfalls,omitempty"` // endpoints with fewer checkers than asked for
	Suspicion  *Suspicion        `json:"suspicion,omitempty"`  // checkers exited after Isobar assigned the service to them
}

// Report describes a service, or all services with health checks for an empty
// name; a service without health checks has none.
func (k *Monitor) Report(service string) []ServiceReport {
	out := k.overview(service)
	for i := range out {
		out[i].Endpoints = k.table.Explain(out[i].Service)
	}
	return out
}

// Overview describes all services with health checks, without their endpoints.
func (k *Monitor) Overview() []ServiceReport { return k.overview("") }

func (k *Monitor) overview(service string) []ServiceReport {
	alarms := k.table.Alarms()
	short := map[string][]Shortfall{}
	for _, s := range k.placement.Shortfalls {
		short[s.Service] = append(short[s.Service], s)
	}
	out := []ServiceReport{}
	for _, name := range k.table.Services() {
		if service != "" && name != service {
			continue
		}
		r := ServiceReport{Service: name, Summary: k.table.Summary(name), Drained: k.Drained(name), Shortfalls: short[name], Suspicion: k.suspects.of(name)}
		for i := range alarms {
			if alarms[i].Service == name {
				r.Alarm = &alarms[i]
			}
		}
		out = append(out, r)
	}
	return out
}
