package admin

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// ChangeList is the body of GET /v1/history.
type ChangeList struct {
	Version string        `json:"version"` // of the plan in force
	Changes []plan.Change `json:"changes"` // newest first
}

// ChangeMarks is the body of GET /v1/history?brief=true.
type ChangeMarks struct {
	Version string       `json:"version"` // of the plan in force
	Marks   []ChangeMark `json:"marks"`   // newest first
}

// ChangeMark is a change in one line.
type ChangeMark struct {
	Version  uint64    `json:"version"`
	Previous uint64    `json:"previous"`
	Made     time.Time `json:"made"`
	Trigger  string    `json:"trigger"`
	Who      string    `json:"who,omitempty"`
	Reason   string    `json:"reason,omitempty"` // of an operator
	About    string    `json:"about,omitempty"`  // service that an operator named; empty: all
	Services int       `json:"services"`         // how many changed
	Moved    float64   `json:"moved"`            // the largest part of its traffic that a source moved
	Most     string    `json:"most,omitempty"`   // the service of that source, or with the largest change of drops
	Why      string    `json:"why,omitempty"`    // of that service
}

// markOf gives a change in one line.
func markOf(c *plan.Change) ChangeMark {
	m := ChangeMark{
		Version: c.Version, Previous: c.Previous, Made: c.Made, Trigger: c.Trigger, Who: c.Who, Reason: c.Reason, About: c.About, Services: len(c.Services),
	}
	most := -1.0
	for i := range c.Services {
		s := &c.Services[i]
		moved := s.Moved()
		m.Moved = max(m.Moved, moved)
		if size := max(moved, math.Abs(s.After-s.Before)); size > most {
			most, m.Most, m.Why = size, s.Service, s.Reason
		}
	}
	return m
}

// getHistory answers GET /v1/history: with ?service= for one service, with ?version=
// the change of that version alone, and with ?brief=true a line for each change.
func (s *Server) getHistory(w http.ResponseWriter, r *http.Request) {
	p, ok := s.plan(w)
	if !ok {
		return
	}
	query := r.URL.Query()
	name := query.Get("service")
	brief, err := strconv.ParseBool(orFalse(query.Get("brief")))
	if err != nil {
		fail(w, http.StatusBadRequest, Problem{Error: "neither true nor false", Place: "brief=" + query.Get("brief"), Fix: "send brief=true, or leave it out"})
		return
	}
	changes, err := s.opts.Operator.History(r.Context(), name)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, Problem{Error: err.Error()})
		return
	}
	if name != "" && s.unknown(name) && !concerns(changes, name) {
		failUnknownService(w, name)
		return
	}
	if text := query.Get("version"); text != "" {
		version, err := plan.ParseVersion(text)
		if err != nil {
			fail(w, http.StatusBadRequest, Problem{Error: err.Error(), Place: "version=" + text, Fix: "give a version as GET /v1/history (`isobar history`) lists them"})
			return
		}
		changes = slices.DeleteFunc(slices.Clone(changes), func(c plan.Change) bool { return c.Version != version })
	}
	if !brief {
		reply(w, http.StatusOK, ChangeList{Version: p.VersionString(), Changes: changes})
		return
	}
	out := ChangeMarks{Version: p.VersionString(), Marks: make([]ChangeMark, len(changes))}
	for i := range changes {
		out.Marks[i] = markOf(&changes[i])
	}
	reply(w, http.StatusOK, out)
}

func orFalse(text string) string {
	if text == "" {
		return "false"
	}
	return text
}

// concerns reports whether a change names the service: one that is gone has a history
// all the same.
func concerns(changes []plan.Change, service string) bool {
	return slices.ContainsFunc(changes, func(c plan.Change) bool {
		return slices.ContainsFunc(c.Services, func(s plan.ServiceChange) bool { return s.Service == service })
	})
}
