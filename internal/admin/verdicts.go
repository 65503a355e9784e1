package admin

import (
	"net/http"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

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
	APIVersion string          `json:"api_version"` // of the API that it speaks: v3, v2 or 2017
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
			failUnknownService(w, name)
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
