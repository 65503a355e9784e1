package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// OperatorRequest is the body of POST /v1/pause, /v1/resume, /v1/rollback and /v1/reload.
type OperatorRequest struct {
	Service string `json:"service,omitempty"` // empty: all services
	Version string `json:"version,omitempty"` // for a rollback: the version to return to
	Confirm string `json:"confirm,omitempty"` // for a reload: the digest of the held removals
	Who     string `json:"who,omitempty"`     // empty: the address of the sender
	Reason  string `json:"reason,omitempty"`
	Force   bool   `json:"force,omitempty"` // for a rollback: even if the present demand does not fit
}

// Operated answers a request of an operator, which is in force since the plan of this version.
type Operated struct {
	Version  string      `json:"version"`
	Paused   plan.Pauses `json:"paused"`            // all present pauses
	Resumed  plan.Pauses `json:"resumed,omitempty"` // pauses that a resume ended; absent = nothing was paused
	Warnings []string    `json:"warnings,omitempty"`
	// Changed are the services that a rollback changed, sorted by name.
	Changed []RolledBack `json:"changed,omitempty"`
}

// RolledBack is the effect of a rollback on a service.
type RolledBack struct {
	plan.ServiceChange

	Fullest [2]float64 `json:"fullest"` // utilization of the fullest locality of declared capacity, before and after
}

// rolledBack tells what a rollback did.
func rolledBack(before, after *plan.Plan) []RolledBack {
	change, _ := plan.Changed(before, after, plan.Origin{Trigger: plan.TriggerOperator})
	out := make([]RolledBack, 0, len(change.Services))
	for i := range change.Services {
		s := &change.Services[i]
		if s.Moved() > 0 {
			out = append(out, RolledBack{*s, [2]float64{plan.OutlookOf(before, s.Service).Fullest, plan.OutlookOf(after, s.Service).Fullest}})
		}
	}
	return out
}

// Bounds of texts, in characters.
const (
	maxOperatorText  = 300 // who and why
	maxAttentionText = 1000
)

// operatorRequest reads the request of an operator; an empty body is one for all services.
func operatorRequest(w http.ResponseWriter, r *http.Request, body []byte) (OperatorRequest, bool) {
	var o OperatorRequest
	err := decodeOne(body, &o)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		fail(w, http.StatusBadRequest, Problem{
			Error: err.Error(), Place: "body", Fix: `send JSON such as {"service": "checkout", "who": "you", "reason": "why"}`,
		})
		return o, false
	}
	o.Who, o.Reason = signed(r, o.Who, o.Reason)
	return o, true
}

// signed returns who sends a request, and why, fit for logs and tables. Without a name it is the
// address that the request came from.
func signed(r *http.Request, who, reason string) (string, string) {
	return cmp.Or(oneLine(who), r.RemoteAddr), oneLine(reason)
}

// decodeOne reads one JSON value without unknown fields; io.EOF for an empty body.
func decodeOne(body []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil && dec.More() {
		err = errors.New("more than one value")
	}
	return err
}

// oneLine makes a text of a request fit for logs and tables.
func oneLine(s string) string { return printable(s, maxOperatorText) }

// printable returns a text in one line, without what can't be printed. A text of more than so
// many characters ends with an ellipsis.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	s = strings.TrimSpace(s)
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most-1]) + "…"
	}
	return s
}

// loopAPI takes what operators order of the control loop, and lets them see beforehand what
// would follow.
type loopAPI struct {
	*core
	*conditionalWrites

	previews chan struct{} // a token for each request that plays changes through
}

func (s *loopAPI) postPause(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := operatorRequest(w, r, body)
	if !ok {
		return
	}
	seen, ok := s.asSeen(w, r, o.Service)
	if !ok {
		return
	}
	defer seen()
	p, warnings, err := s.opts.Operator.Pause(r.Context(), plan.Pause{Service: o.Service, Who: o.Who, Reason: o.Reason})
	if err != nil {
		s.failOperated(w, err)
		return
	}
	s.operated(w, r, "paused", &o, Operated{Version: p.VersionString(), Paused: p.Paused, Warnings: warnings})
}

func (s *loopAPI) postResume(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := operatorRequest(w, r, body)
	if !ok {
		return
	}
	seen, ok := s.asSeen(w, r, o.Service)
	if !ok {
		return
	}
	defer seen()
	resumed, p, warnings, err := s.opts.Operator.Resume(r.Context(), plan.Pause{Service: o.Service, Who: o.Who, Reason: o.Reason})
	if current := s.opts.Planner.Current(); errors.Is(err, plan.ErrNonePaused) && current != nil {
		reply(w, http.StatusOK, Operated{Version: current.VersionString(), Paused: plan.Pauses{}})
		return
	}
	if err != nil {
		s.failOperated(w, err)
		return
	}
	s.operated(w, r, "resumed", &o, Operated{Version: p.VersionString(), Paused: p.Paused, Resumed: resumed, Warnings: warnings})
}

func (s *loopAPI) postRollback(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := operatorRequest(w, r, body)
	if !ok {
		return
	}
	version, err := plan.ParseVersion(o.Version)
	if err != nil {
		fail(w, http.StatusBadRequest, Problem{Error: err.Error(), Place: "version", Fix: "give a version as GET /v1/history (`isobar history`) lists them"})
		return
	}
	seen, ok := s.asSeen(w, r, o.Service)
	if !ok {
		return
	}
	defer seen()
	before, p, warnings, err := s.opts.Operator.Rollback(r.Context(), version, plan.Pause{Service: o.Service, Who: o.Who, Reason: o.Reason}, o.Force)
	if err != nil {
		s.failOperated(w, err)
		return
	}
	s.operated(w, r, "rolled back", &o, Operated{Version: p.VersionString(), Paused: p.Paused, Warnings: warnings, Changed: rolledBack(before, p)})
}

// failOperated answers a request that failed.
func (s *loopAPI) failOperated(w http.ResponseWriter, err error) {
	var tooMuch *plan.TooMuchError
	switch {
	case errors.Is(err, plan.ErrAllPaused):
		fail(w, http.StatusConflict, Problem{Error: err.Error(), Fix: "resume all: leave the service out"})
	case errors.As(err, &tooMuch):
		p := Problem{Error: "the present demand does not fit those weights: " + tooMuch.Breaches[0]}
		if tooMuch.Loss {
			p = Problem{Error: "the present demand would not fit those weights without one more zone: " + tooMuch.Breaches[0]}
		}
		p.Fix = `add capacity first, or force it: "force": true, or --force on the command line`
		for _, text := range tooMuch.Breaches[:min(len(tooMuch.Breaches), maxBreaches)] {
			p.Problems = append(p.Problems, Problem{Error: text})
		}
		fail(w, http.StatusConflict, p)
	case errors.Is(err, plan.ErrUnchanged):
		fail(w, http.StatusConflict, Problem{Error: err.Error(), Fix: "to keep the weights of now, pause: POST /v1/pause (`isobar pause`)"})
	case errors.Is(err, isobar.ErrNotFound):
		fail(w, http.StatusNotFound, Problem{
			Error: err.Error(),
			Fix: "GET /v1/history (`isobar history`) lists versions, GET /v1/services (`isobar top`) services, " +
				"and GET /v1/status (`isobar status`) what is paused",
		})
	default:
		fail(w, http.StatusServiceUnavailable, Problem{Error: err.Error()})
	}
}

// operated answers a request that succeeded.
func (s *loopAPI) operated(w http.ResponseWriter, r *http.Request, what string, o *OperatorRequest, out Operated) {
	s.audit(r).Info("weights changed by operator", "what", what, "service", o.Service, "to", o.Version, "who", o.Who, "reason", o.Reason, "force", o.Force)
	if out.Paused == nil {
		out.Paused = plan.Pauses{}
	}
	reply(w, http.StatusOK, out)
}

// HeldConfiguration is the part of the configuration file that is not in force, because clients use
// what it removes.
type HeldConfiguration struct {
	Digest   string        `json:"digest"`            // digest of the file, with which an operator confirms it
	Removes  string        `json:"removes,omitempty"` // how much the file removes, if no part of it is in force
	Services []HeldService `json:"services"`          // that the file in force no longer has, sorted by name
}

// HeldService is a service that is still served, although the configuration no longer has it.
type HeldService struct {
	Service string    `json:"service"`
	Rate    float64   `json:"rate"`             // requests/s that clients send
	Silent  int       `json:"silent,omitempty"` // clients that subscribe to it and report no load
	Since   time.Time `json:"since"`

	Confirm bool `json:"confirm,omitempty"` // it is served until an operator confirms the removal, even without load
}

// Reloaded answers POST /v1/reload.
type Reloaded struct {
	Held *HeldConfiguration `json:"held,omitempty"` // the removals that are still held
}

// postReload answers POST /v1/reload. The request may confirm a digest.
func (s *loopAPI) postReload(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := operatorRequest(w, r, body)
	if !ok {
		return
	}
	held, err := s.opts.Configuration.Reload(o.Confirm)
	switch {
	case errors.Is(err, isobar.ErrStale):
		fail(w, http.StatusConflict, Problem{Error: err.Error(), Place: "confirm", Fix: "GET /v1/status (`isobar status`) shows held removals, with the digest"})
	case errors.Is(err, isobar.ErrInvalid):
		fail(w, http.StatusBadRequest, Problem{Error: err.Error(), Fix: "fix the file; the previous configuration stays in force"})
	case err != nil && held == nil:
		fail(w, http.StatusServiceUnavailable, Problem{Error: err.Error()})
	default:
		s.audit(r).Info("configuration reloaded by operator", "confirmed", o.Confirm, "who", o.Who, "reason", o.Reason)
		reply(w, http.StatusOK, Reloaded{Held: held})
	}
}
