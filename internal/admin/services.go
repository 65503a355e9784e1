package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/isobar-xds/isobar"
)

// ServiceList is the body of GET /v1/services.
type ServiceList struct {
	Services []isobar.Object `json:"services"` // sorted by name
}

func (s *Server) listServices(w http.ResponseWriter, _ *http.Request) {
	list := ServiceList{Services: s.opts.Objects.List()}
	if list.Services == nil {
		list.Services = []isobar.Object{}
	}
	reply(w, http.StatusOK, list)
}

func (s *Server) getService(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	obj, err := s.opts.Objects.Get(name)
	if err != nil {
		s.failWrite(w, err, name)
		return
	}
	w.Header().Set("ETag", etag(obj.Revision))
	reply(w, http.StatusOK, obj)
}

func (s *Server) putService(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	match, ok := s.ifMatch(w, r, name)
	if !ok {
		return
	}
	if !readableType(w, r) {
		return
	}
	body, ok := readBody(w, r, maxObjectBytes)
	if !ok {
		return
	}
	svc, warnings, err := s.opts.Parser.ParseService(name, body)
	if err != nil {
		fail(w, http.StatusBadRequest, problemOf(err))
		return
	}
	obj, revision, err := s.opts.Objects.Put(name, svc, match)
	if err != nil {
		if match != 0 && errors.Is(err, isobar.ErrNotFound) { // If-Match on nothing does not match
			err = fmt.Errorf("%w: %w", isobar.ErrStale, err)
		}
		s.failWrite(w, err, name)
		return
	}
	w.Header().Set("ETag", etag(obj.Revision))
	s.published(w, r, revision, Published{Service: name, Revision: obj.Revision, Warnings: warnings})
}

func (s *Server) putServices(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != "" {
		fail(w, http.StatusBadRequest, Problem{
			Error: "the set of services has no revision of its own",
			Place: "If-Match",
			Fix:   "leave the header out, or write single services",
		})
		return
	}
	if !readableType(w, r) {
		return
	}
	body, ok := readBody(w, r, maxSetBytes)
	if !ok {
		return
	}
	services, warnings, err := s.opts.Parser.ParseServices(body)
	if err != nil {
		fail(w, http.StatusBadRequest, problemOf(err))
		return
	}
	revision, err := s.opts.Objects.PutAll(services)
	if err != nil {
		s.failWrite(w, err, "")
		return
	}
	s.published(w, r, revision, Published{Warnings: warnings})
}

func (s *Server) deleteService(w http.ResponseWriter, r *http.Request) {
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
	s.published(w, r, revision, Published{Service: name})
}

// ifMatch reads the precondition: 0 when there is none.
func (s *Server) ifMatch(w http.ResponseWriter, r *http.Request, name string) (uint64, bool) {
	if r.Header.Get("If-None-Match") != "" {
		fail(w, http.StatusBadRequest, Problem{
			Error: "If-None-Match is not supported on writes", Place: "If-None-Match", Fix: "use If-Match with the revision that you read",
		})
		return 0, false
	}
	header := strings.TrimSpace(r.Header.Get("If-Match"))
	if header == "" {
		return 0, true
	}
	if header == "*" { // whatever stands now, as long as something does
		obj, err := s.opts.Objects.Get(name)
		if err != nil {
			s.failWrite(w, fmt.Errorf("%w: %w", isobar.ErrStale, err), name)
			return 0, false
		}
		return obj.Revision, true
	}
	match, err := strconv.ParseUint(strings.Trim(header, `"`), 10, 64)
	if err != nil || match == 0 {
		fail(w, http.StatusBadRequest, Problem{
			Error: "the revision is not one of ours", Place: "If-Match: " + header,
			Fix: `send the ETag of GET /v1/services/{name} as it came, for example If-Match: "7"`,
		})
		return 0, false
	}
	return match, true
}

func etag(revision uint64) string { return strconv.Quote(strconv.FormatUint(revision, 10)) }

// readBody reads at most limit bytes.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		fail(w, http.StatusRequestEntityTooLarge, Problem{
			Error: fmt.Sprintf("the body is larger than %d bytes", limit), Fix: "write fewer or smaller services at once",
		})
		return nil, false
	case err != nil:
		fail(w, http.StatusBadRequest, Problem{Error: "the body could not be read: " + err.Error(), Fix: "send it again"})
		return nil, false
	}
	return body, true
}
