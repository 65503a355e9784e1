package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/isobar-xds/isobar"
)

// ServiceList is the body of GET /v1/services.
type ServiceList struct {
	Services []ServiceObject `json:"services"` // sorted by name
}

// ServiceObject is a service with its owner, and with the health that operators set for its
// endpoints.
type ServiceObject struct {
	isobar.Object

	HealthOverrides []isobar.HealthOverride `json:"health_overrides,omitempty"` // sorted by address
}

// objectAPI reads and writes services, and the health of endpoints as operators set it.
type objectAPI struct {
	*core
	*conditionalWrites

	drains   sync.Mutex    // held from the check of a write that drains until it has happened
	draining chan struct{} // a token for each drain of an endpoint that has it or waits for it
}

func (s *objectAPI) listServices(w http.ResponseWriter, _ *http.Request) {
	overrides := s.overrides()
	list := ServiceList{Services: []ServiceObject{}}
	for _, o := range s.opts.Objects.List() {
		list.Services = append(list.Services, ServiceObject{Object: o, HealthOverrides: overrides[o.Service.Name]})
	}
	reply(w, http.StatusOK, list)
}

func (s *objectAPI) getService(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	obj, err := s.opts.Objects.Get(name)
	if err != nil {
		s.failWrite(w, err, name)
		return
	}
	w.Header().Set("ETag", etag(obj.Revision))
	reply(w, http.StatusOK, ServiceObject{Object: obj, HealthOverrides: s.overrides()[name]})
}

func (s *objectAPI) putService(w http.ResponseWriter, r *http.Request, body []byte) {
	name := r.PathValue("name")
	match, ok := s.ifMatch(w, r, name)
	if !ok {
		return
	}
	svc, warnings, err := s.opts.Parser.ParseService(name, body)
	if err != nil {
		fail(w, http.StatusBadRequest, problemOf(err))
		return
	}
	unchecked, unlock, ok := s.beginReplace(w, r, []isobar.Service{svc})
	if !ok {
		return
	}
	defer unlock()
	obj, revision, err := s.opts.Objects.Put(name, svc, match)
	if err != nil {
		if match != 0 && errors.Is(err, isobar.ErrNotFound) { // If-Match on nothing does not match
			err = fmt.Errorf("%w: %w", isobar.ErrStale, err)
		}
		s.failWrite(w, err, name)
		return
	}
	s.audit(r).Info("service written", "service", name, "revision", obj.Revision)
	w.Header().Set("ETag", etag(obj.Revision))
	unlock()
	s.published(w, r, revision, Published{Service: name, Revision: obj.Revision, Warnings: append(warnings, unchecked...)})
}

func (s *objectAPI) putServices(w http.ResponseWriter, r *http.Request, body []byte) {
	if conditional(w, r, "the set of services has no revision of its own", "leave the header out, or write single services") {
		return
	}
	services, warnings, err := s.opts.Parser.ParseServices(body)
	if err != nil {
		fail(w, http.StatusBadRequest, problemOf(err))
		return
	}
	if !s.confirmed(w, r, services, body) {
		return
	}
	unchecked, unlock, ok := s.beginReplace(w, r, services)
	if !ok {
		return
	}
	defer unlock()
	revision, err := s.opts.Objects.PutAll(services)
	if err != nil {
		s.failWrite(w, err, "")
		return
	}
	s.audit(r).Info("services of the API replaced", "services", len(services))
	unlock()
	s.published(w, r, revision, Published{Warnings: append(warnings, unchecked...)})
}

// confirmed reports whether a set may replace the services of the API: one that removes much of
// what is there, as a writer that has lost its source sends it, needs the digest of the body in
// ?confirm=. An empty set says what it means. Otherwise the request is answered.
func (s *objectAPI) confirmed(w http.ResponseWriter, r *http.Request, services []isobar.Service, body []byte) bool {
	if s.opts.Configuration == nil || len(services) == 0 {
		return true
	}
	digest := digestOf(body)
	what := s.opts.Configuration.Removes(services)
	if what == "" || r.URL.Query().Get("confirm") == digest {
		return true
	}
	fail(w, http.StatusConflict, Problem{
		Error: "the set is held: it removes " + what + " of the API", Place: "confirm",
		Fix: "if that is meant, send the same body to /v1/services?confirm=" + digest,
	})
	return false
}

// digestOf names a body.
func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:6])
}

func (s *objectAPI) deleteService(w http.ResponseWriter, r *http.Request, _ []byte) {
	name := r.PathValue("name")
	match, ok := s.ifMatch(w, r, name)
	if !ok {
		return
	}
	revision, err := s.opts.Objects.Delete(name, match)
	if err != nil {
		s.failWrite(w, err, name)
		return
	}
	s.audit(r).Info("service deleted", "service", name)
	s.published(w, r, revision, Published{Service: name})
}

// conditional refuses a write with a precondition on what has no revision.
func conditional(w http.ResponseWriter, r *http.Request, why, fix string) bool {
	for _, header := range []string{"If-Match", "If-None-Match"} {
		if r.Header.Get(header) != "" {
			fail(w, http.StatusBadRequest, Problem{Error: why, Place: header + ": " + r.Header.Get(header), Fix: fix})
			return true
		}
	}
	return false
}

func etag(revision uint64) string { return strconv.Quote(strconv.FormatUint(revision, 10)) }
