package admin

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// DrainRequest is the body of POST /v1/drain and POST /v1/undrain: endpoints of a
// service, by address or by region, zone or locality.
type DrainRequest struct {
	plan.Drain

	Who    string `json:"who,omitempty"` // empty: the address of the sender
	Reason string `json:"reason,omitempty"`
}

// Drained answers a DrainRequest.
type Drained struct {
	Published

	Addresses []string `json:"addresses"` // sorted as in the service
}

// conditionalWrites carries out writes with If-Match: operators act on the state that they saw.
type conditionalWrites struct {
	*core

	mu sync.Mutex // held by a write with If-Match from the comparison until it is carried out
}

// operatorState names what operators decided of a service: it changes with its object,
// with the health that operators set, and with pauses that concern it. A page that has
// seen it can act on what it saw, by If-Match, or not at all.
func (s *conditionalWrites) operatorState(p *plan.Plan, name string) string {
	seen := struct {
		Revision  uint64                  `json:"revision"`
		Overrides []isobar.HealthOverride `json:"overrides"`
		Paused    []plan.Pause            `json:"paused"`
	}{}
	if obj, err := s.opts.Objects.Get(name); err == nil {
		seen.Revision = obj.Revision
	}
	for _, o := range s.opts.Objects.Overrides() {
		if o.Service == name {
			o.Who, o.Reason = "", "" // replicas of earlier versions do not keep them
			seen.Overrides = append(seen.Overrides, o)
		}
	}
	if p != nil {
		for _, x := range p.Paused {
			if x.Service == "" || x.Service == name {
				seen.Paused = append(seen.Paused, x)
			}
		}
	}
	data, err := json.Marshal(seen)
	if err != nil { // of a time that JSON does not have
		data = fmt.Appendf(nil, "%+v", seen)
	}
	sum := sha256.Sum256(data)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// asSeen reports whether what operators decided of a service is still what the request
// names by If-Match; a request without it takes what there is. Otherwise the request is
// answered. The caller calls unlock when its write is done: until then no other
// write with If-Match is.
func (s *conditionalWrites) asSeen(w http.ResponseWriter, r *http.Request, name string) (unlock func(), ok bool) {
	header := strings.TrimSpace(r.Header.Get("If-Match"))
	if header == "" {
		return func() {}, true
	}
	if name == "" {
		fail(w, http.StatusBadRequest, Problem{
			Error: "a request for all services has no state to match", Place: "If-Match", Fix: "leave the header out, or name a service",
		})
		return nil, false
	}
	s.mu.Lock()
	unlock = sync.OnceFunc(s.mu.Unlock)
	if strings.Trim(header, `"`) != s.operatorState(s.opts.Planner.Current(), name) {
		unlock()
		fail(w, http.StatusPreconditionFailed, Problem{
			Error: "the service, its pauses or the health of its endpoints changed meanwhile", Place: "If-Match: " + header,
			Fix: "read the service again, then decide",
		})
		return nil, false
	}
	return unlock, true
}

func (s *objectAPI) postDrain(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := drainRequest(w, r, body)
	if !ok {
		return
	}
	seen, ok := s.asSeen(w, r, o.Service)
	if !ok {
		return
	}
	defer seen()
	unlock, ok := s.beginDrain(w)
	if !ok {
		return
	}
	defer unlock()
	warnings, ok := s.allowDrain(w, r, &Drain{Health: o.Drain})
	if !ok {
		return
	}
	s.setHealths(w, r, &o, isobar.Draining, warnings, func() {
		unlock()
		seen()
	})
}

func (s *objectAPI) postUndrain(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := drainRequest(w, r, body)
	if !ok {
		return
	}
	seen, ok := s.asSeen(w, r, o.Service)
	if !ok {
		return
	}
	defer seen()
	s.setHealths(w, r, &o, isobar.Unknown, nil, seen)
}

// setHealths sets the health of all endpoints of a request at once. It calls unlock
// before it waits for the plan.
func (s *objectAPI) setHealths(w http.ResponseWriter, r *http.Request, o *DrainRequest, status isobar.HealthStatus, warnings []Problem, unlock func()) {
	obj, err := s.opts.Objects.Get(o.Service)
	if err != nil {
		s.failWrite(w, err, o.Service)
		return
	}
	addresses, none := o.Addresses(&obj.Service), "has no endpoint"
	if status == isobar.Unknown {
		addresses, none = s.drainedOf(o.Service, addresses), "has no endpoint that an operator drained"
	}
	if len(addresses) == 0 {
		fail(w, http.StatusNotFound, Problem{
			Error: fmt.Sprintf("service %s %s at %s%s", o.Service, none, o.Address, o.Locality),
			Fix:   "GET /v1/services/{name} lists endpoints, GET /v1/health what operators set",
		})
		return
	}
	as := func(p Published) any { return Drained{p, addresses} }
	ordered := isobar.HealthChange{Service: o.Service, Addresses: addresses, Status: status, Who: o.Who, Reason: o.Reason}
	revision, err := s.opts.Objects.SetHealths(&ordered)
	if err != nil {
		s.keepHealths(w, r, err, &ordered, as)
		return
	}
	s.audit(r).Info("endpoints drained, or no longer, by operator", "drained", status == isobar.Draining, "service", o.Service,
		"address", o.Address, "locality", o.Locality.String(), "endpoints", len(addresses), "who", o.Who, "reason", o.Reason)
	unlock()
	s.publishedAs(w, r, revision, Published{Service: o.Service, Warnings: warnings}, as)
}

// drainedOf returns those of the addresses that an operator drained.
func (s *objectAPI) drainedOf(service string, addresses []string) []string {
	drained := map[string]bool{}
	for _, o := range s.opts.Objects.Overrides() {
		if o.Service == service && o.Status == isobar.Draining {
			drained[o.Address] = true
		}
	}
	return slices.DeleteFunc(addresses, func(a string) bool { return !drained[a] })
}

// drainRequest reads the body of POST /v1/drain and /v1/undrain.
func drainRequest(w http.ResponseWriter, r *http.Request, body []byte) (DrainRequest, bool) {
	var o DrainRequest
	if err := decodeOne(body, &o); err != nil {
		fail(w, http.StatusBadRequest, Problem{
			Error: "the body is not the expected JSON: " + err.Error(), Place: "body",
			Fix: `send {"service": "checkout", "locality": "us-east/b", "who": "you", "reason": "why"}, or "address" in place of "locality"`,
		})
		return o, false
	}
	if o.Service == "" || (o.Address == "") == o.Locality.IsZero() {
		fail(w, http.StatusBadRequest, Problem{
			Error: "no endpoints given", Place: "body", Fix: "name a service, and either an address or a region, zone or locality",
		})
		return o, false
	}
	o.Who, o.Reason = signed(r, o.Who, o.Reason)
	return o, true
}
