package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// postWhatIf answers POST /v1/whatif: what would become of the plan in force if
// localities were lost or drained, or demand grew. As postPlan it publishes
// nothing, and one is answered at a time.
func (s *Server) postWhatIf(w http.ResponseWriter, r *http.Request) {
	body, done, ok := s.beginPreview(w, r, maxObjectBytes)
	if !ok {
		return
	}
	defer done()
	var what plan.WhatIf
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&what)
	if err == nil && decoder.More() {
		err = errors.New("something follows the object")
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

// WhatIf asks what would become of the plan in force.
func (r *Remote) WhatIf(ctx context.Context, what *plan.WhatIf) (plan.Difference, error) {
	var out plan.Difference
	body, err := json.Marshal(what)
	if err != nil {
		return out, err
	}
	err = r.do(ctx, http.MethodPost, r.base.JoinPath("/v1/whatif"), bytes.NewReader(body), &out)
	return out, err
}
