package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

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
// it takes work, so that one is answered at a time and others wait for it.
func (s *loopAPI) postPlan(w http.ResponseWriter, r *http.Request) {
	body, done, ok := s.beginPreview(w, r, maxSetBytes)
	if !ok {
		return
	}
	defer done()
	d, warnings, err := s.opts.Configuration.Preview(r.Context(), body)
	switch {
	case errors.Is(err, isobar.ErrInvalid):
		fail(w, http.StatusBadRequest, problemOf(err))
	case err != nil:
		fail(w, http.StatusServiceUnavailable, problemOf(err))
	default:
		d.Risks = append(d.Risks, d.Slower()...)
		reply(w, http.StatusOK, Previewed{Difference: d, Warnings: warnings})
	}
}

// previewWait bounds how long a question waits for those before it. Consoles ask
// several by themselves, so that their questions meet often.
const previewWait = 5 * time.Second

// beginPreview reads the body of a question that takes work and waits for its
// turn. Without ok it is answered, and done need not be called.
func (s *loopAPI) beginPreview(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, done func(), ok bool) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		fail(w, http.StatusForbidden, Problem{Error: "the request comes from another origin: " + err.Error(), Place: r.Header.Get("Origin")})
		return nil, nil, false
	}
	if !readableType(w, r) {
		return nil, nil, false
	}
	body, release, ok := s.readBody(w, r, limit)
	if !ok {
		return nil, nil, false
	}
	ctx, cancel := context.WithTimeout(r.Context(), previewWait)
	defer cancel()
	select {
	case s.previews <- struct{}{}:
	case <-ctx.Done():
		release()
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, Problem{Error: "another preview is in progress", Fix: "try again in some seconds"})
		return nil, nil, false
	}
	decoded, ok := s.decoded.await(ctx, len(body))
	if !ok {
		<-s.previews
		release()
		failBusy(w)
		return nil, nil, false
	}
	return body, func() {
		decoded()
		<-s.previews
		release()
	}, true
}

// postWhatIf answers POST /v1/whatif: what would become of the plan in force if
// localities were lost or drained, or demand grew. As postPlan it publishes
// nothing, and one is answered at a time.
func (s *loopAPI) postWhatIf(w http.ResponseWriter, r *http.Request) {
	body, done, ok := s.beginPreview(w, r, maxWhatIfBytes)
	if !ok {
		return
	}
	defer done()
	var what plan.WhatIf
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&what)
	if err == nil && decoder.More() {
		err = errors.New("more text follows the object")
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		fail(w, http.StatusBadRequest, Problem{
			Error: "the body is not the expected JSON: " + err.Error(), Place: "body",
			Fix: `send {"lose": ["us-east/b"], "drain": [{"service": "checkout", "locality": "us-east/b"}], "demand": [{"factor": 1.2}]}`,
		})
		return
	}
	d, err := s.opts.Operator.WhatIf(r.Context(), &what)
	switch {
	case errors.Is(err, isobar.ErrNotFound):
		fail(w, http.StatusNotFound, Problem{Error: err.Error(), Fix: namesFix})
	case errors.Is(err, isobar.ErrInvalid):
		fail(w, http.StatusBadRequest, problemOf(err))
	case err != nil:
		fail(w, http.StatusServiceUnavailable, problemOf(err))
	default:
		reply(w, http.StatusOK, d)
	}
}
