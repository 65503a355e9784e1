package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Order is the body of POST /v1/pause, /v1/resume, /v1/rollback and /v1/reload.
type Order struct {
	Service string `json:"service,omitempty"` // empty: all services
	Version string `json:"version,omitempty"` // of a rollback: where to return to
	Confirm string `json:"confirm,omitempty"` // of a reload: the digest of what is held
	Who     string `json:"who,omitempty"`     // empty: the address that the request came from
	Reason  string `json:"reason,omitempty"`
}

// Operated answers an order: it is in force since the plan of the version.
type Operated struct {
	Version  string      `json:"version"`
	Paused   plan.Pauses `json:"paused"` // everything that is paused now
	Warnings []string    `json:"warnings,omitempty"`
}

// maxOrderText bounds who and why, in characters.
const maxOrderText = 300

// order reads an order; an empty body is one for all services.
func order(w http.ResponseWriter, r *http.Request, body []byte) (Order, bool) {
	var o Order
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(&o)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && dec.More() {
		err = errors.New("more than one value")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, Problem{
			Error: err.Error(), Place: "body", Fix: `send JSON such as {"service": "checkout", "who": "you", "reason": "why"}`,
		})
		return o, false
	}
	o.Who, o.Reason = oneLine(o.Who), oneLine(o.Reason)
	if o.Who == "" {
		o.Who = r.RemoteAddr
	}
	return o, true
}

// oneLine makes a text fit for logs and tables.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if runes := []rune(s); len(runes) > maxOrderText {
		s = string(runes[:maxOrderText])
	}
	return strings.TrimSpace(s)
}

func (s *Server) postPause(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := order(w, r, body)
	if !ok {
		return
	}
	p, warnings, err := s.opts.Operator.Pause(r.Context(), plan.Pause{Service: o.Service, Who: o.Who, Reason: o.Reason})
	s.operated(w, r, "paused", &o, p, warnings, err)
}

func (s *Server) postResume(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := order(w, r, body)
	if !ok {
		return
	}
	p, warnings, err := s.opts.Operator.Resume(r.Context(), plan.Pause{Service: o.Service, Who: o.Who, Reason: o.Reason})
	s.operated(w, r, "resumed", &o, p, warnings, err)
}

func (s *Server) postRollback(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := order(w, r, body)
	if !ok {
		return
	}
	version, err := plan.ParseVersion(o.Version)
	if err != nil {
		fail(w, http.StatusBadRequest, Problem{Error: err.Error(), Place: "version", Fix: "give a version as GET /v1/history (`isobar history`) lists them"})
		return
	}
	p, warnings, err := s.opts.Operator.Rollback(r.Context(), version, plan.Pause{Service: o.Service, Who: o.Who, Reason: o.Reason})
	s.operated(w, r, "rolled back", &o, p, warnings, err)
}

// operated answers an order.
func (s *Server) operated(w http.ResponseWriter, r *http.Request, what string, o *Order, p *plan.Plan, warnings []string, err error) {
	switch {
	case errors.Is(err, plan.ErrAllPaused):
		fail(w, http.StatusConflict, Problem{Error: err.Error(), Fix: "resume all: leave the service out"})
	case errors.Is(err, isobar.ErrNotFound):
		fail(w, http.StatusNotFound, Problem{
			Error: err.Error(),
			Fix: "GET /v1/history (`isobar history`) lists versions, GET /v1/services (`isobar top`) services, " +
				"and GET /v1/status (`isobar status`) what is paused",
		})
	case err != nil:
		fail(w, http.StatusServiceUnavailable, Problem{Error: err.Error()})
	default:
		s.audit(r).Info("weights changed by operator", "what", what, "service", o.Service, "to", o.Version, "who", o.Who, "reason", o.Reason)
		out := Operated{Version: p.VersionString(), Paused: p.Paused, Warnings: warnings}
		if out.Paused == nil {
			out.Paused = plan.Pauses{}
		}
		reply(w, http.StatusOK, out)
	}
}

// ChangeList is the body of GET /v1/history.
type ChangeList struct {
	Version string        `json:"version"` // of the plan in force
	Changes []plan.Change `json:"changes"` // newest first
}

// getHistory answers GET /v1/history, or with ?service= for one service.
func (s *Server) getHistory(w http.ResponseWriter, r *http.Request) {
	p, ok := s.plan(w)
	if !ok {
		return
	}
	name := r.URL.Query().Get("service")
	changes, err := s.opts.Operator.History(r.Context(), name)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, Problem{Error: err.Error()})
		return
	}
	if name != "" && s.unknown(name) && !concerns(changes, name) {
		failUnknownService(w, name)
		return
	}
	reply(w, http.StatusOK, ChangeList{Version: p.VersionString(), Changes: changes})
}

// concerns tells whether a change names the service: one that is gone has a
// history all the same.
func concerns(changes []plan.Change, service string) bool {
	return slices.ContainsFunc(changes, func(c plan.Change) bool {
		return slices.ContainsFunc(c.Services, func(s plan.ServiceChange) bool { return s.Service == service })
	})
}
