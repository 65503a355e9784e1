package admin

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/plan"
)

// ChangeList is the body of GET /v1/history.
type ChangeList struct {
	Version string        `json:"version"` // of the plan in force
	Changes []plan.Change `json:"changes"` // newest first
}

// ChangeMarks is the body of GET /v1/history?brief=true.
type ChangeMarks struct {
	Version string         `json:"version"` // of the plan in force
	Marks   []archive.Mark `json:"marks"`   // newest first; the last 1,000
}

// Timeline is the body of GET /v1/history/timeline.
type Timeline struct {
	archive.Timeline

	Version string `json:"version"` // of the plan in force
}

// Moment is the body of GET /v1/history/moment.
type Moment struct {
	Version string          `json:"version"`          // of the plan in force
	At      time.Time       `json:"at"`               // the moment
	Change  *archive.Mark   `json:"change,omitempty"` // last change at or before it; missing: none is kept
	Before  *time.Time      `json:"before,omitempty"` // when the change before that one was
	Next    *time.Time      `json:"next,omitempty"`   // when the change after it was
	Number  int             `json:"number"`           // of the change, from 1 on, oldest first
	Count   int             `json:"count"`            // of all changes that are kept
	Shares  *archive.Shares `json:"shares,omitempty"` // of the service after the change, if the request names one
}

// Span is the body of GET /v1/history/span.
type Span struct {
	Version string         `json:"version"` // of the plan in force
	From    time.Time      `json:"from"`
	To      time.Time      `json:"to"`
	Count   int            `json:"count"`            // of the changes from one moment on and before the other
	Changes []archive.Mark `json:"changes"`          // of those, the largest 20, largest first
	Before  *time.Time     `json:"before,omitempty"` // when the last change before them was
	Next    *time.Time     `json:"next,omitempty"`   // when the first change after them was
}

// maxSpan bounds the changes of a span.
const maxSpan = 20

// maxMarks bounds the changes of an answer.
const maxMarks = 1000

// historyAPI tells what was: changes, moments and charts.
type historyAPI struct{ *core }

// getHistory answers GET /v1/history: with ?service= for one service, with ?version=
// the change of that version alone, and with ?brief=true a line for each change.
func (s *historyAPI) getHistory(w http.ResponseWriter, r *http.Request) {
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
	if brief {
		marks, ok := s.marks(w, r, name)
		if !ok {
			return
		}
		slices.Reverse(marks)
		reply(w, http.StatusOK, ChangeMarks{Version: p.VersionString(), Marks: marks[:min(len(marks), maxMarks)]})
		return
	}
	if text := query.Get("version"); text != "" {
		s.oneChange(w, r, p, text, name)
		return
	}
	changes, ok := s.recent(w, r, name)
	if ok {
		reply(w, http.StatusOK, ChangeList{Version: p.VersionString(), Changes: changes})
	}
}

// recent returns the changes that can be rolled back, newest first. Without ok it is
// answered.
func (s *historyAPI) recent(w http.ResponseWriter, r *http.Request, name string) ([]plan.Change, bool) {
	changes, err := s.opts.Operator.History(r.Context(), name)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, Problem{Error: err.Error()})
		return nil, false
	}
	if name != "" && s.unknown(name) && !concerns(changes, name) {
		s.failUnknownService(w, name)
		return nil, false
	}
	return changes, true
}

// oneChange answers with the change of a version.
func (s *historyAPI) oneChange(w http.ResponseWriter, r *http.Request, p *plan.Plan, text, name string) {
	version, err := plan.ParseVersion(text)
	if err != nil {
		fail(w, http.StatusBadRequest, Problem{Error: err.Error(), Place: "version=" + text, Fix: "give a version as GET /v1/history (`isobar history`) lists them"})
		return
	}
	out := ChangeList{Version: p.VersionString(), Changes: []plan.Change{}}
	if s.opts.Archive != nil {
		c, err := s.opts.Archive.Change(version, name)
		switch {
		case err == nil && (name == "" || len(c.Services) > 0 || c.Trigger == plan.TriggerOperator):
			out.Changes = append(out.Changes, c)
		case err != nil && !errors.Is(err, isobar.ErrNotFound):
			fail(w, http.StatusInternalServerError, Problem{Error: err.Error()})
			return
		}
	}
	if len(out.Changes) == 0 {
		changes, ok := s.recent(w, r, name)
		if !ok {
			return
		}
		out.Changes = slices.DeleteFunc(slices.Clone(changes), func(c plan.Change) bool { return c.Version != version })
	}
	reply(w, http.StatusOK, out)
}

// marks lists the changes of a service, or all, of the last day, oldest first. Without ok
// it is answered.
func (s *historyAPI) marks(w http.ResponseWriter, r *http.Request, name string) ([]archive.Mark, bool) {
	if s.opts.Archive == nil {
		changes, ok := s.recent(w, r, name)
		out := make([]archive.Mark, 0, len(changes))
		for i := range slices.Backward(changes) {
			out = append(out, archive.MarkOf(&changes[i]))
		}
		return out, ok
	}
	out, err := s.opts.Archive.Marks(name)
	if err != nil {
		fail(w, http.StatusInternalServerError, Problem{Error: err.Error()})
		return nil, false
	}
	if name != "" && s.unknown(name) && !slices.ContainsFunc(out, func(m archive.Mark) bool { return m.Services > 0 }) {
		s.failUnknownService(w, name)
		return nil, false
	}
	return out, true
}

// The steps of a timeline.
const (
	timelineSteps = 240
	hourStep      = 15 * time.Second
	dayStep       = 6 * time.Minute
)

// getTimeline answers GET /v1/history/timeline?service=NAME&span=hour|day: how much
// changed when. The steps begin at whole multiples, so that they stand still.
func (s *historyAPI) getTimeline(w http.ResponseWriter, r *http.Request) {
	p, ok := s.plan(w)
	if !ok {
		return
	}
	query := r.URL.Query()
	step, ok := spanOf(w, query, map[string]time.Duration{"": dayStep, spanDay: dayStep, spanHour: hourStep})
	if !ok {
		return
	}
	marks, ok := s.marks(w, r, query.Get("service"))
	if !ok {
		return
	}
	begin := time.Now().Truncate(step).Add(step - timelineSteps*step)
	reply(w, http.StatusOK, Timeline{archive.TimelineOf(marks, begin, step, timelineSteps), p.VersionString()})
}

func spanOf(w http.ResponseWriter, query url.Values, steps map[string]time.Duration) (time.Duration, bool) {
	span := query.Get("span")
	step, ok := steps[span]
	if !ok {
		fail(w, http.StatusBadRequest, Problem{Error: "neither hour nor day", Place: "span=" + span, Fix: "send span=hour or span=day, or leave it out"})
	}
	return step, ok
}

// getSpan answers GET /v1/history/span?from=TIME&to=TIME&service=NAME: what changed
// between two moments, largest first.
func (s *historyAPI) getSpan(w http.ResponseWriter, r *http.Request) {
	p, ends, ok := s.asked(w, r)
	if !ok {
		return
	}
	marks, ok := s.marks(w, r, r.URL.Query().Get("service"))
	if !ok {
		return
	}
	found := archive.Between(marks, ends[0], ends[1])
	out := Span{Version: p.VersionString(), From: ends[0].UTC(), To: ends[1].UTC(), Count: len(found), Changes: []archive.Mark{}}
	out.Changes = append(out.Changes, found[:min(len(found), maxSpan)]...)
	for i := range marks {
		made := &marks[i].Made
		if made.Before(ends[0]) {
			out.Before = made
		}
		if out.Next == nil && !made.Before(ends[1]) {
			out.Next = made
		}
	}
	reply(w, http.StatusOK, out)
}

// asked returns the plan in force, and the two moments of the span that a request names. Without
// ok it is answered.
func (s *historyAPI) asked(w http.ResponseWriter, r *http.Request) (p *plan.Plan, ends [2]time.Time, ok bool) {
	if p, ok = s.plan(w); ok {
		ends, ok = endsOf(w, r.URL.Query())
	}
	return p, ends, ok
}

// endsOf reads the two moments of a span. Without ok it is answered.
func endsOf(w http.ResponseWriter, query url.Values) (ends [2]time.Time, ok bool) {
	for i, name := range []string{"from", "to"} {
		if ends[i], ok = moment(w, name, query.Get(name)); !ok {
			return ends, false
		}
	}
	if !ends[0].Before(ends[1]) {
		fail(w, http.StatusBadRequest, Problem{Error: "the span is empty", Place: "to=" + query.Get("to"), Fix: "send a time after from"})
		return ends, false
	}
	return ends, true
}

// moment reads a time of a query. Without ok it is answered.
func moment(w http.ResponseWriter, name, text string) (at time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		fail(w, http.StatusBadRequest, Problem{Error: "not a time", Place: name + "=" + text, Fix: "send a time such as " + name + "=2026-01-31T14:03:00Z"})
	}
	return at, err == nil
}

// getMoment answers GET /v1/history/moment?at=TIME&service=NAME: the change that stood
// at a moment, and the shares of a service then.
func (s *historyAPI) getMoment(w http.ResponseWriter, r *http.Request) {
	p, ok := s.plan(w)
	if !ok {
		return
	}
	query := r.URL.Query()
	name, at := query.Get("service"), time.Now()
	if text := query.Get("at"); text != "" {
		if at, ok = moment(w, "at", text); !ok {
			return
		}
	}
	marks, ok := s.marks(w, r, name)
	if !ok {
		return
	}
	i := archive.Standing(marks, at)
	out := Moment{Version: p.VersionString(), At: at.UTC(), Number: i + 1, Count: len(marks)}
	if i >= 0 {
		out.Change = &marks[i]
	}
	if i > 0 {
		out.Before = &marks[i-1].Made
	}
	if i+1 < len(marks) {
		out.Next = &marks[i+1].Made
	}
	if name != "" && i >= 0 && s.opts.Archive != nil {
		var now *plan.SavedService
		if svc, found := p.Service(name); found && svc.Result != nil {
			now = plan.Outline(svc)
		}
		shares, err := s.opts.Archive.Moment(name, marks[i].Version, now)
		if err != nil {
			fail(w, http.StatusInternalServerError, Problem{Error: err.Error()})
			return
		}
		out.Shares = &shares
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
// nevertheless.
func concerns(changes []plan.Change, service string) bool {
	return slices.ContainsFunc(changes, func(c plan.Change) bool {
		return slices.ContainsFunc(c.Services, func(s plan.ServiceChange) bool { return s.Service == service })
	})
}
