package admin

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/samples"
)

// SampleSeries is the body of GET /v1/samples: values from the plans of the last hour or day for a
// service, or for all services together. All lists have the same length, one entry for each step
// starting at `begin`; null is a missing sample.
type SampleSeries struct {
	Service     string           `json:"service,omitempty"` // none: all services together
	Begin       time.Time        `json:"begin"`
	StepSeconds float64          `json:"step_seconds"`
	Demand      Numbers          `json:"demand"`       // requests/s
	Drop        Numbers          `json:"drop"`         // fraction that the assignment makes clients drop
	Gap         Numbers          `json:"gap"`          // largest possible distance of the served assignment from the optimum
	CrossZone   Numbers          `json:"cross_zone"`   // fraction that is served in another zone, including other regions
	CrossRegion Numbers          `json:"cross_region"` // fraction that is served in another region
	Localities  []LocalitySeries `json:"localities"`   // sorted; none for all services together
	Marks       []SampleMark     `json:"marks,omitempty"`
}

// SampleMark is a moment that charts mark, such as a deployment or an event of the demo.
type SampleMark struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	Who  string    `json:"who,omitempty"`
}

// LocalitySeries is the planned utilization of a locality of a service.
type LocalitySeries struct {
	Locality    isobar.Locality `json:"locality"`
	Utilization Numbers         `json:"utilization"`
}

// Numbers is a list of numbers in JSON, in which NaN is null and others have four
// digits.
type Numbers []float64

// MarshalJSON writes the list.
func (n Numbers) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, x := range n {
		if i > 0 {
			out = append(out, ',')
		}
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			out = append(out, "null"...)
		case math.Abs(x) < 1e-5:
			out = append(out, '0')
		case math.Abs(x) < 1:
			out = strconv.AppendFloat(out, math.Round(x*1e5)/1e5, 'f', -1, 64)
		default:
			out = strconv.AppendFloat(out, x, 'g', 4, 64)
		}
	}
	return append(out, ']'), nil
}

// The spans of GET /v1/samples.
const (
	spanHour = "hour"
	spanDay  = "day"
)

// getSamples answers GET /v1/samples?service=NAME&span=hour|day.
func (s *historyAPI) getSamples(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name, span := query.Get("service"), query.Get("span")
	if span != "" && span != spanHour && span != spanDay {
		fail(w, http.StatusBadRequest, Problem{Error: "neither hour nor day", Place: "span=" + span, Fix: "send span=hour or span=day, or leave it out"})
		return
	}
	found, ok := s.opts.Charts.Samples(name, span == spanDay)
	if !ok && name != "" && s.unknown(name) {
		s.failUnknownService(w, name)
		return
	}
	out := seriesView(name, &found)
	out.Marks = s.opts.Charts.Marks()
	reply(w, http.StatusOK, out)
}

func seriesView(name string, found *samples.Series) SampleSeries {
	n := len(found.Values)
	out := SampleSeries{
		Service: name, Begin: found.Begin, StepSeconds: found.Step.Seconds(),
		Demand: make(Numbers, n), Drop: make(Numbers, n), Gap: make(Numbers, n), CrossZone: make(Numbers, n), CrossRegion: make(Numbers, n),
		Localities: []LocalitySeries{},
	}
	for i := range found.Values {
		v := &found.Values[i]
		out.Demand[i], out.Drop[i], out.Gap[i], out.CrossZone[i], out.CrossRegion[i] = v.Demand, v.Drop, v.Gap, v.CrossZone, v.CrossRegion
	}
	for i := range found.Sites {
		out.Localities = append(out.Localities, LocalitySeries{found.Sites[i].Locality, found.Sites[i].Utilization})
	}
	return out
}

// UnmarshalJSON reads the list.
func (n *Numbers) UnmarshalJSON(data []byte) error {
	var read []*float64
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	*n = make(Numbers, len(read))
	for i, x := range read {
		(*n)[i] = math.NaN()
		if x != nil {
			(*n)[i] = *x
		}
	}
	return nil
}

// MarkList is the body of GET /v1/marks: the moments that charts mark, oldest first.
type MarkList struct {
	Marks []SampleMark `json:"marks"`
}

// MarkRequest is the body of POST /v1/marks.
type MarkRequest struct {
	Text string    `json:"text"`
	At   time.Time `json:"at,omitzero"`   // zero: now
	Who  string    `json:"who,omitempty"` // empty: the address of the sender
}

const (
	// maxMarkAge is how long ago a marked moment may be: charts show a day.
	maxMarkAge = 24 * time.Hour
	// maxMarkAhead is by how much the clock of who marks may be ahead.
	maxMarkAhead = time.Minute
)

// getMarks answers GET /v1/marks.
func (s *historyAPI) getMarks(w http.ResponseWriter, _ *http.Request) {
	out := MarkList{Marks: s.opts.Charts.Marks()}
	if out.Marks == nil {
		out.Marks = []SampleMark{}
	}
	reply(w, http.StatusOK, out)
}

// postMark answers POST /v1/marks: charts mark a moment.
func (s *historyAPI) postMark(w http.ResponseWriter, r *http.Request, body []byte) {
	var o MarkRequest
	err := decodeOne(body, &o)
	now := time.Now()
	if o.Text, o.Who = oneLine(o.Text), oneLine(o.Who); o.Who == "" {
		o.Who = r.RemoteAddr
	}
	switch {
	case err != nil:
		fail(w, http.StatusBadRequest, Problem{
			Error: "the body is not the expected JSON: " + err.Error(), Place: "body", Fix: `send {"text": "deploy of v42", "who": "you"}`,
		})
		return
	case o.Text == "":
		fail(w, http.StatusBadRequest, Problem{Error: "the mark has no text", Place: "text", Fix: "say what happened in a line"})
		return
	case o.At.IsZero():
		o.At = now
	case now.Sub(o.At) > maxMarkAge || o.At.Sub(now) > maxMarkAhead:
		fail(w, http.StatusBadRequest, Problem{
			Error: fmt.Sprintf("the moment is more than %s ago, or in the future", maxMarkAge), Place: "at",
			Fix: "give a time of the last day, as in RFC 3339, or leave it out for now",
		})
		return
	}
	m := SampleMark{At: o.At.UTC().Truncate(time.Millisecond), Text: o.Text, Who: o.Who}
	if err := s.opts.Charts.Mark(m); err != nil {
		p := problemOf(err)
		p.Fix = "try again; GET /v1/replicas (`isobar replicas status`) shows the group"
		fail(w, http.StatusServiceUnavailable, p)
		return
	}
	s.audit(r).Info("a moment marked by operator", "text", m.Text, "at", m.At, "who", m.Who)
	reply(w, http.StatusOK, m)
}
