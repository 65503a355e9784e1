package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Published answers a write. With status 200 the plan of the version has it in
// it; with 202 the write is kept, and Reason says why no plan has it yet.
type Published struct {
	Service          string                `json:"service,omitempty"`    // empty for the whole set
	Revision         uint64                `json:"revision,omitempty"`   // of the object, as in its ETag; none after a delete
	TopologyRevision uint64                `json:"topology_revision"`    // of all objects together
	Version          string                `json:"version,omitempty"`    // of the plan that has the write in it
	Reason           string                `json:"reason,omitempty"`     // with 202
	Warnings         []Problem             `json:"warnings,omitempty"`   // the body holds, but likely not as it was meant
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
