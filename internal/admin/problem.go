package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/isobar-xds/isobar"
)

// Problem is the body of every error: the error, its place, and its fix.
type Problem struct {
	Error    string    `json:"error"`
	Place    string    `json:"place,omitempty"` // part of the request with the problem
	Fix      string    `json:"fix,omitempty"`
	Owner    string    `json:"owner,omitempty"`    // with 409: the owner of the service
	Revision uint64    `json:"revision,omitempty"` // with 412: the present revision
	Problems []Problem `json:"problems,omitempty"` // single problems, if there are several
}

// InputError is everything that is wrong with a body. It wraps
// isobar.ErrInvalid.
type InputError struct {
	Problems []Problem // at least one
}

// Error tells the first fault, and how many there are.
func (e *InputError) Error() string {
	switch len(e.Problems) {
	case 0:
		return isobar.ErrInvalid.Error()
	case 1:
		return e.Problems[0].Error
	}
	return fmt.Sprintf("%d faults, the first: %s", len(e.Problems), e.Problems[0].Error)
}

// Unwrap makes the error an isobar.ErrInvalid.
func (e *InputError) Unwrap() error { return isobar.ErrInvalid }

// problemOf turns an error into a Problem, with its parts where it has some.
func problemOf(err error) Problem {
	p := Problem{Error: err.Error()}
	if input, ok := errors.AsType[*InputError](err); ok && len(input.Problems) > 0 {
		p.Place, p.Fix = input.Problems[0].Place, input.Problems[0].Fix
		if len(input.Problems) > 1 {
			p.Problems = input.Problems
		}
	}
	return p
}

// failWrite answers an error of Objects. name is the service it is about; ""
// for the whole set.
func (s *core) failWrite(w http.ResponseWriter, err error, name string) {
	p := problemOf(err)
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, isobar.ErrStale): // first: If-Match on nothing is both stale and not found
		code = http.StatusPreconditionFailed
		if obj, gerr := s.opts.Objects.Get(name); gerr == nil {
			p.Revision = obj.Revision
		}
		if p.Fix == "" {
			p.Fix = "read the service again and repeat the change on its present state"
		}
	case errors.Is(err, isobar.ErrOwned):
		code = http.StatusConflict
		p.Owner = isobar.OwnerFile
		if obj, gerr := s.opts.Objects.Get(name); gerr == nil {
			p.Owner = obj.Owner
		}
		if p.Fix == "" {
			p.Fix = "change the service where it belongs: in the " + ownerPlace(p.Owner)
		}
	case errors.Is(err, isobar.ErrNotFound):
		code = http.StatusNotFound
		if p.Fix == "" {
			p.Fix = namesFix
		}
	case errors.Is(err, isobar.ErrInvalid):
		code = http.StatusBadRequest
	case errors.Is(err, isobar.ErrUnavailable):
		code = http.StatusServiceUnavailable
		if p.Fix == "" {
			p.Fix = "try again; GET /v1/replicas (`isobar replicas status`) shows the group"
		}
	default:
		s.opts.Logger.Error("admin write failed", "service", name, "error", err)
	}
	fail(w, code, p)
}

// namesFix says where the names are that a request may have meant.
const namesFix = "GET /v1/services lists services with their localities and endpoints, and `isobar top -n 1` services"

func ownerPlace(owner string) string {
	switch owner {
	case isobar.OwnerFile:
		return "configuration file"
	case isobar.OwnerXDS:
		return "configuration file, under discovery.xds, or in the control plane that lists its endpoints"
	case isobar.OwnerDNS:
		return "configuration file, under discovery.dns, or in the DNS zone that lists its endpoints"
	case isobar.OwnerKubernetes:
		return "configuration file, under discovery.kubernetes, or in the Kubernetes cluster that lists its endpoints"
	default:
		return "admin API"
	}
}

func fail(w http.ResponseWriter, code int, p Problem) { reply(w, code, p) }

// reply writes v as JSON. A value that can't be encoded is a fault of ours.
func reply(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		code = http.StatusInternalServerError
		body = []byte(`{"error":"the answer can't be written as JSON"}`)
	}
	w.Header().Set("Content-Type", mediaJSON)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client may be gone; there is nobody to tell
}
