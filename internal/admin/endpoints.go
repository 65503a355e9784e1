package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// settable are the states that an operator may set: what probes find is not
// for people to claim.
var settable = []isobar.HealthStatus{isobar.Healthy, isobar.Unhealthy, isobar.Draining}

// HealthList is the body of GET /v1/health.
type HealthList struct {
	Overrides []isobar.HealthOverride `json:"overrides"` // sorted by service and address
}

// EndpointHealth is the body of GET .../endpoints/{address}/health.
type EndpointHealth struct {
	Service    string              `json:"service"`
	Address    string              `json:"address"`
	Locality   isobar.Locality     `json:"locality"`
	Configured isobar.HealthStatus `json:"configured"`         // health in the service's configuration
	Health     isobar.HealthStatus `json:"health"`             // health that the published plan gives to clients
	Override   *HealthSet          `json:"override,omitempty"` // nil: no operator has set it
}

// HealthSet is the health that an operator sets for an endpoint.
type HealthSet struct {
	Status isobar.HealthStatus `json:"status"`
	Since  time.Time           `json:"since,omitzero"` // zero: not known
	Who    string              `json:"who,omitempty"`  // empty: not known
	Reason string              `json:"reason,omitempty"`
}

// getHealths lists the health that operators set.
func (s *objectAPI) getHealths(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, HealthList{Overrides: append([]isobar.HealthOverride{}, s.opts.Objects.Overrides()...)})
}

// getHealth tells the health of one endpoint, and who says so.
func (s *objectAPI) getHealth(w http.ResponseWriter, r *http.Request) {
	name, address := r.PathValue("name"), r.PathValue("address")
	obj, err := s.opts.Objects.Get(name)
	if err != nil {
		s.failWrite(w, err, name)
		return
	}
	locality, e, found := obj.Service.Endpoint(address)
	if !found {
		s.failWrite(w, fmt.Errorf("endpoint %s of service %s: %w", address, name, isobar.ErrNotFound), name)
		return
	}
	out := EndpointHealth{Service: name, Address: e.Address, Locality: locality, Configured: e.Health, Health: e.Health}
	for _, o := range s.overrides()[name] {
		if o.Address == e.Address {
			out.Override = &HealthSet{Status: o.Status, Since: o.Since, Who: o.Who, Reason: o.Reason}
			out.Health = o.Status
		}
	}
	if told, ok := toldHealth(s.opts.Planner.Current(), name, e.Address); ok {
		out.Health = told
	}
	reply(w, http.StatusOK, out)
}

// toldHealth is the health of an endpoint in a plan.
func toldHealth(p *plan.Plan, service, address string) (isobar.HealthStatus, bool) {
	if p == nil {
		return 0, false
	}
	svc, ok := p.Service(service)
	if !ok {
		return 0, false
	}
	for i := range svc.Sites {
		for _, e := range svc.Sites[i].Group.Endpoints {
			if e.Address == address {
				return e.Health, true
			}
		}
	}
	return 0, false
}

// putHealth overrides the health of one endpoint, also of services that belong
// to the file: the file says how an endpoint starts, the operator how it is.
func (s *objectAPI) putHealth(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := parseHealth(body)
	if !ok {
		fail(w, http.StatusBadRequest, Problem{
			Error: "unknown health", Place: "body: " + strings.TrimSpace(string(body)),
			Fix: `send healthy, unhealthy or draining, as plain text, a JSON string or {"health": "draining", "who": "you", "reason": "why"}`,
		})
		return
	}
	s.setHealth(w, r, &o)
}

// deleteHealth takes the operator's word back: the endpoint is again what the
// configuration and checkers say.
func (s *objectAPI) deleteHealth(w http.ResponseWriter, r *http.Request, _ []byte) {
	s.setHealth(w, r, &isobar.HealthChange{Status: isobar.Unknown})
}

// setHealth sets the health of the endpoint of a request. Who gives it, and why, stands
// in the order, or in parameters.
func (s *objectAPI) setHealth(w http.ResponseWriter, r *http.Request, o *isobar.HealthChange) {
	if conditional(w, r, "the health of an endpoint has no revision", "leave the header out") {
		return
	}
	query := r.URL.Query()
	o.Service, o.Addresses = r.PathValue("name"), []string{r.PathValue("address")}
	o.Who, o.Reason = signed(r, cmp.Or(o.Who, query.Get("who")), cmp.Or(o.Reason, query.Get("reason")))
	var warnings []Problem
	unlock := func() {}
	if o.Status == isobar.Draining { // unhealthy tells a fact: what is down serves nothing however full the rest is, and waits for no drain
		var ok bool
		if unlock, ok = s.beginDrain(w); !ok {
			return
		}
		defer unlock()
		if warnings, ok = s.allowDrain(w, r, &Drain{Health: plan.Drain{Service: o.Service, Address: o.Addresses[0]}}); !ok {
			return
		}
	}
	revision, err := s.opts.Objects.SetHealths(o)
	if err != nil {
		s.keepHealths(w, r, err, o, func(p Published) any { return p })
		return
	}
	log := s.audit(r).With("service", o.Service, "address", o.Addresses[0], "who", o.Who, "reason", o.Reason)
	if o.Status == isobar.Unknown {
		log.Info("override taken back")
	} else {
		log.Info("health set by operator", "health", o.Status.String())
	}
	unlock()
	s.published(w, r, revision, Published{Service: o.Service, Warnings: warnings})
}

// parseHealth reads a state from plain text, a JSON string or an object. The object may tell
// who sets it, and why.
func parseHealth(body []byte) (isobar.HealthChange, bool) {
	text := strings.TrimSpace(string(body))
	var object struct {
		Health string `json:"health"`
		Who    string `json:"who"`
		Reason string `json:"reason"`
	}
	var quoted string
	switch {
	case json.Unmarshal(body, &object) == nil:
		text = object.Health
	case json.Unmarshal(body, &quoted) == nil:
		text = quoted
	default:
		text = strings.TrimSpace(strings.TrimPrefix(text, "health:")) // the same as YAML
	}
	status, err := isobar.ParseHealth(text)
	return isobar.HealthChange{Status: status, Who: object.Who, Reason: object.Reason}, err == nil && slices.Contains(settable, status)
}

// keepHealths answers a change of health that could not be made. If the request forces it,
// and no replica leads, the change is kept for the next leader.
func (s *objectAPI) keepHealths(w http.ResponseWriter, r *http.Request, refused error, o *isobar.HealthChange, as func(Published) any) {
	force, ok := forced(w, r)
	if !ok {
		return
	}
	if s.opts.Replicas == nil || !errors.Is(refused, isobar.ErrUnavailable) {
		s.failWrite(w, refused, o.Service)
		return
	}
	if !force {
		p := problemOf(refused)
		p.Fix = "try again; GET /v1/replicas (`isobar replicas status`) shows the group. " +
			"Where it has no leader, ?force=true (--force) keeps the change for the next one"
		fail(w, http.StatusServiceUnavailable, p)
		return
	}
	if err := s.opts.Objects.ForceHealths(r.Context(), o); err != nil {
		s.failWrite(w, err, o.Service)
		return
	}
	s.audit(r).Info("health kept for the next leader, by operator", "service", o.Service, "addresses", len(o.Addresses), "health", o.Status.String(),
		"who", o.Who, "reason", o.Reason)
	reply(w, http.StatusAccepted, as(Published{Service: o.Service, Reason: keptReason}))
}

// keptReason answers a write that no leader has put in force.
const keptReason = "no replica leads the group: the election engine has the change, and the next leader puts it in force"

// getSource shows how things stand with another control plane.
func (s *fleetAPI) getSource(w http.ResponseWriter, r *http.Request) {
	state, ok := s.opts.Providers.ControlPlane()
	if !ok {
		fail(w, http.StatusNotFound, Problem{
			Error: "no other control plane is configured", Place: r.URL.Path,
			Fix: "list its services under discovery.xds of the configuration file",
		})
		return
	}
	reply(w, http.StatusOK, state)
}

// getDNS shows how things stand with the names that DNS resolves.
func (s *fleetAPI) getDNS(w http.ResponseWriter, r *http.Request) {
	state, ok := s.opts.Providers.DNS()
	if !ok {
		fail(w, http.StatusNotFound, Problem{
			Error: "no names are configured", Place: r.URL.Path,
			Fix: "list services with the names of their endpoints under discovery.dns of the configuration file",
		})
		return
	}
	reply(w, http.StatusOK, state)
}

// getKubernetes shows how things stand with the Kubernetes cluster.
func (s *fleetAPI) getKubernetes(w http.ResponseWriter, r *http.Request) {
	state, ok := s.opts.Providers.Kubernetes()
	if !ok {
		fail(w, http.StatusNotFound, Problem{
			Error: "no Kubernetes cluster is configured", Place: r.URL.Path,
			Fix: "write discovery.kubernetes into the configuration file",
		})
		return
	}
	reply(w, http.StatusOK, state)
}
