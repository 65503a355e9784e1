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

// VerdictList is the body of GET /v1/verdicts.
type VerdictList struct {
	Services []health.ServiceReport `json:"services"` // those with health checks, sorted by name
	Checkers []Checker              `json:"checkers"` // connected, sorted by id
}

// Checker is a connected health checker as operators see it.
type Checker struct {
	ID         string          `json:"id"`
	Locality   isobar.Locality `json:"locality"`
	Agent      string          `json:"agent"` // user agent and its version
	Peer       string          `json:"peer"`  // remote address
	Since      time.Time       `json:"since"`
	APIVersion string          `json:"api_version"` // transport API version of the checker: v3, v2 or 2017
	Protocols  string          `json:"protocols"`
	Polling    bool            `json:"polling,omitempty"`
	Designated int             `json:"designated"` // endpoints that it is to probe
	LastReport time.Time       `json:"last_report,omitzero"`
	Rejected   uint64          `json:"rejected"` // entries that were left out
	Reason     string          `json:"reason,omitempty"`
}

// getVerdicts answers GET /v1/verdicts, of all services or, with ?service=NAME, of
// one.
func (s *fleetAPI) getVerdicts(w http.ResponseWriter, r *http.Request) {
	services, ok := s.probed(w, r, r.URL.Query().Get("service"))
	if !ok {
		return
	}
	list := VerdictList{Services: services, Checkers: []Checker{}}
	list.Checkers = append(list.Checkers, s.opts.HealthChecks.Checkers()...)
	reply(w, http.StatusOK, list)
}

// probed returns what checkers found of a service, or of all for an empty name; a
// service that has no health checks is answered for.
func (s *fleetAPI) probed(w http.ResponseWriter, r *http.Request, name string) ([]health.ServiceReport, bool) {
	services, err := s.opts.HealthChecks.Health(r.Context(), name)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, Problem{Error: "the control loop does not answer: " + err.Error()})
		return nil, false
	}
	if name != "" && len(services) == 0 {
		if s.unknown(name) {
			s.failUnknownService(w, name)
			return nil, false
		}
		fail(w, http.StatusNotFound, Problem{
			Error: "no health checks for this service", Place: "service=" + name,
			Fix: "set health_checks of the service; GET /v1/services lists the names, GET /v1/health what operators set",
		})
		return nil, false
	}
	return services, true
}

// Released is the body of the answer to a release.
type Released struct {
	Service  string `json:"service"`
	Released bool   `json:"released"` // false: nothing was held
}

// putRelease answers PUT /v1/services/{name}/health/release: a mass flip that
// is held is believed.
func (s *fleetAPI) putRelease(w http.ResponseWriter, r *http.Request, _ []byte) {
	if conditional(w, r, "what checkers found has no revision", "leave the header out") {
		return
	}
	name := r.PathValue("name")
	if _, ok := s.probed(w, r, name); !ok {
		return
	}
	released, err := s.opts.HealthChecks.Release(r.Context(), name)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, Problem{Error: "the control loop does not answer: " + err.Error()})
		return
	}
	s.audit(r).Info("mass flip believed by operator", "service", name, "held", released)
	reply(w, http.StatusOK, Released{Service: name, Released: released})
}
