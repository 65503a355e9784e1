package admin

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Previewed is the body of the answer to POST /v1/plan.
type Previewed struct {
	plan.Difference

	Warnings []Problem `json:"warnings,omitempty"`
}

// postPlan answers POST /v1/plan: what the configuration file in the body would
// change. It publishes nothing, so that a read-only interface answers too; but
// it takes work, so that one is answered at a time.
func (s *Server) postPlan(w http.ResponseWriter, r *http.Request) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		fail(w, http.StatusForbidden, Problem{Error: "the request comes from another origin: " + err.Error(), Place: r.Header.Get("Origin")})
		return
	}
	if !readableType(w, r) {
		return
	}
	body, release, ok := s.readBody(w, r, maxSetBytes)
	if !ok {
		return
	}
	defer release()
	select {
	case s.previews <- struct{}{}:
		defer func() { <-s.previews }()
	default:
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, Problem{Error: "another preview is under way", Fix: "try again in some seconds"})
		return
	}
	d, warnings, err := s.opts.Preview(r.Context(), body)
	switch {
	case errors.Is(err, isobar.ErrInvalid):
		fail(w, http.StatusBadRequest, problemOf(err))
	case err != nil:
		fail(w, http.StatusServiceUnavailable, problemOf(err))
	default:
		reply(w, http.StatusOK, Previewed{Difference: d, Warnings: warnings})
	}
}

// Preview asks what a configuration file would change.
func (r *Remote) Preview(ctx context.Context, data []byte) (Previewed, error) {
	var out Previewed
	err := r.do(ctx, http.MethodPost, r.base.JoinPath("/v1/plan"), bytes.NewReader(data), &out)
	return out, err
}
