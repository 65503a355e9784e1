package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// core is what the parts of the interface share: what they are made of, and how they
// answer.
type core struct {
	opts    Options
	metrics *metrics
	bodies  budget
	decoded turns  // what bodies cost while they are decoded and looked at
	answers budget // what large answers hold until clients have taken them
	panics  rpc.LogLimit
}

// plan returns the published plan, or answers that there is none.
func (s *core) plan(w http.ResponseWriter) (*plan.Plan, bool) {
	p := s.opts.Planner.Current()
	if p == nil {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, Problem{Error: "no plan has been published yet", Fix: "wait for /readyz to say ok"})
		return nil, false
	}
	return p, true
}

// unknown reports whether there is a plan, and no such service in it.
func (s *core) unknown(name string) bool {
	p := s.opts.Planner.Current()
	if p == nil {
		return false
	}
	_, found := p.Service(name)
	return !found
}

// failUnknownService answers that there is no such service, and which ones may be meant.
func (s *core) failUnknownService(w http.ResponseWriter, name string) {
	p := Problem{
		Error: "no such service in the published plan", Place: "service=" + name, Fix: "GET /v1/services lists the names, and `isobar top -n 1` shows them",
	}
	if current := s.opts.Planner.Current(); current != nil {
		names := make([]string, len(current.Services))
		for i, svc := range current.Services {
			names[i] = svc.Spec.Name
		}
		p.Error += meant(s.opts.Nearest, name, names)
	}
	fail(w, http.StatusNotFound, p)
}

// meant is a question for what may have been meant by a name; empty without nearest, which is
// as in [Options].
func meant(nearest func(name string, names []string, most int) []string, name string, known []string) string {
	if nearest == nil {
		return ""
	}
	if near := nearest(name, known, mostNamed); len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}

// audit returns the log for writes that took effect, with who made them.
func (s *core) audit(r *http.Request) *slog.Logger { return s.opts.Logger.With("peer", r.RemoteAddr) }

// ifMatch reads the precondition: 0 when there is none.
func (s *core) ifMatch(w http.ResponseWriter, r *http.Request, name string) (uint64, bool) {
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
			Error: "the revision is malformed", Place: "If-Match: " + header,
			Fix: `send the ETag of GET /v1/services/{name} as it came, for example If-Match: "7"`,
		})
		return 0, false
	}
	return match, true
}

// overrides returns what operators say, by service.
func (s *core) overrides() map[string][]isobar.HealthOverride {
	out := map[string][]isobar.HealthOverride{}
	for _, o := range s.opts.Objects.Overrides() {
		out[o.Service] = append(out[o.Service], o)
	}
	return out
}

func (s *core) stalled() string {
	beat := s.opts.Planner.Beat()
	if age := time.Since(beat); !beat.IsZero() && age > s.opts.Process.Stall() {
		return fmt.Sprintf("the control loop last advanced %s ago", age.Round(time.Second))
	}
	return ""
}

// Published answers a write. With status 200, the plan of this version contains the write; with 202,
// the write is saved, and Reason says why no plan contains it yet.
type Published struct {
	Service          string                `json:"service,omitempty"`    // empty for the whole set
	Revision         uint64                `json:"revision,omitempty"`   // of the object, as in its ETag; none after a delete
	TopologyRevision uint64                `json:"topology_revision"`    // of all objects together
	Version          string                `json:"version,omitempty"`    // of the plan that has the write in it
	Reason           string                `json:"reason,omitempty"`     // with 202
	Warnings         []Problem             `json:"warnings,omitempty"`   // settings that are accepted, but are probably a mistake
	Violations       []invariant.Violation `json:"violations,omitempty"` // why the plan kept an earlier assignment of the service
	WaitedMS         float64               `json:"waited_ms"`            // until the plan was published, or given up
}

// published waits for the plan that has the revision in it, and answers.
func (s *core) published(w http.ResponseWriter, r *http.Request, revision uint64, p Published) {
	s.publishedAs(w, r, revision, p, func(p Published) any { return p })
}

// publishedAs does so with what as makes of the answer.
func (s *core) publishedAs(w http.ResponseWriter, r *http.Request, revision uint64, p Published, as func(Published) any) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), s.opts.PublishWait)
	defer cancel()
	next, err := s.opts.Planner.WaitRevision(ctx, revision)
	p.TopologyRevision = revision
	p.WaitedMS = float64(time.Since(start).Microseconds()) / 1000
	if err != nil || next == nil {
		p.Reason = s.whyNotYet(revision)
		reply(w, http.StatusAccepted, as(p))
		return
	}
	p.Version = next.VersionString()
	p.Violations = violationsOf(next, p.Service)
	reply(w, http.StatusOK, as(p))
}

func violationsOf(p *plan.Plan, service string) []invariant.Violation {
	var out []invariant.Violation
	for _, v := range p.Violations {
		if service == "" || v.Service == service {
			out = append(out, v)
		}
	}
	return out
}

// whyNotYet says what is known of a write that no plan has in it.
func (s *core) whyNotYet(revision uint64) string {
	text := fmt.Sprintf("the change is kept, but no plan with topology revision %d was published within %s", revision, s.opts.PublishWait)
	if now := s.opts.Planner.Current(); now != nil && now.Topology != nil {
		text += fmt.Sprintf("; plan %s has revision %d", now.VersionString(), now.Topology.Revision)
	} else {
		text += "; there is no plan yet"
	}
	if beat := s.opts.Planner.Beat(); beat.IsZero() {
		text += "; the control loop has not started"
	} else {
		text += fmt.Sprintf("; the control loop advanced %s ago", time.Since(beat).Round(time.Millisecond))
	}
	return text
}
