package admin

import (
	"net/http"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// CheckerList is the body of GET /v1/checkers.
type CheckerList struct {
	Checkers []Checker `json:"checkers"` // connected, sorted by id
	Paths    []Path    `json:"paths"`    // on which probes fail, sorted
}

// Path leads from the checkers of a zone to endpoints of a locality. Probes on it fail
// for long, while other zones reach the same endpoints: the path has a problem, not the
// endpoints.
type Path struct {
	From      isobar.Locality   `json:"from"`
	To        isobar.Locality   `json:"to"`
	Endpoints int               `json:"endpoints"`      // that the checkers of from see down, and others don't
	Services  []string          `json:"services"`       // of them, sorted, at most 10
	Reached   []isobar.Locality `json:"reached"`        // zones of checkers that reach such endpoints, sorted
	Since     time.Time         `json:"since,omitzero"` // oldest of the votes
}

// Bounds of what GET /v1/checkers looks at.
const (
	maxDividedServices = 100
	maxPathServices    = 10
)

// getCheckers answers GET /v1/checkers.
func (s *fleetAPI) getCheckers(w http.ResponseWriter, r *http.Request) {
	services, err := s.opts.HealthChecks.HealthOverview(r.Context())
	if err != nil {
		fail(w, http.StatusServiceUnavailable, Problem{Error: "the control loop does not answer: " + err.Error()})
		return
	}
	var divided []health.ServiceReport
	for i := range services {
		if services[i].Summary.Divided == 0 || len(divided) >= maxDividedServices {
			continue
		}
		found, err := s.opts.HealthChecks.Health(r.Context(), services[i].Service)
		if err != nil {
			fail(w, http.StatusServiceUnavailable, Problem{Error: "the control loop does not answer: " + err.Error()})
			return
		}
		divided = append(divided, found...)
	}
	out := CheckerList{Checkers: []Checker{}, Paths: pathsOf(divided)}
	out.Checkers = append(out.Checkers, s.opts.HealthChecks.Checkers()...)
	reply(w, http.StatusOK, out)
}

// pathsOf sums the divided verdicts up by the zones that see an endpoint down, and the
// locality of the endpoint.
func pathsOf(services []health.ServiceReport) []Path {
	type key struct{ from, to isobar.Locality }
	found := map[key]*Path{}
	for i := range services {
		for k := range services[i].Endpoints {
			v := &services[i].Endpoints[k]
			if !v.Divided {
				continue
			}
			for _, zone := range v.Zones {
				at := key{zone, v.Locality}
				if found[at] == nil {
					found[at] = &Path{From: zone, To: v.Locality, Services: []string{}, Reached: []isobar.Locality{}}
				}
				found[at].add(services[i].Service, v)
			}
		}
	}
	out := make([]Path, 0, len(found))
	for _, p := range found {
		slices.Sort(p.Services)
		p.Services = p.Services[:min(len(p.Services), maxPathServices)]
		slices.SortFunc(p.Reached, isobar.Locality.Compare)
		p.Reached = slices.Compact(p.Reached)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Path) int {
		if c := a.From.Compare(b.From); c != 0 {
			return c
		}
		return a.To.Compare(b.To)
	})
	return out
}

func (p *Path) add(service string, v *health.Verdict) {
	p.Endpoints++
	if !slices.Contains(p.Services, service) {
		p.Services = append(p.Services, service)
	}
	for i := range v.Votes {
		vote := &v.Votes[i]
		switch {
		case !vote.Counts:
		case vote.Zone == p.From:
			if p.Since.IsZero() || vote.Since.Before(p.Since) {
				p.Since = vote.Since
			}
		case !slices.Contains(v.Zones, vote.Zone):
			p.Reached = append(p.Reached, vote.Zone)
		}
	}
}
