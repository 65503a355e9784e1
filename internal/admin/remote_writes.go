package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Pause freezes the weights of a service, or of all for an empty name.
func (r *Remote) Pause(ctx context.Context, o OperatorRequest) (Operated, error) {
	return r.operate(ctx, "/v1/pause", o)
}

// Resume takes a pause back; all of them for an empty service.
func (r *Remote) Resume(ctx context.Context, o OperatorRequest) (Operated, error) {
	return r.operate(ctx, "/v1/resume", o)
}

// Rollback returns to the weights of an earlier version and pauses.
func (r *Remote) Rollback(ctx context.Context, o OperatorRequest) (Operated, error) {
	return r.operate(ctx, "/v1/rollback", o)
}

// Reload has the server read its configuration file again, and confirms what is
// held of it.
func (r *Remote) Reload(ctx context.Context, o OperatorRequest) (Reloaded, error) {
	return posted[Reloaded](ctx, r, "/v1/reload", o)
}

func (r *Remote) operate(ctx context.Context, path string, o OperatorRequest) (Operated, error) {
	return posted[Operated](ctx, r, path, o)
}

// posted sends a request and returns the answer.
func posted[T any](ctx context.Context, r *Remote, path string, o any) (out T, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return out, err
	}
	err = r.do(ctx, http.MethodPost, r.base.JoinPath(path), bytes.NewReader(body), &out)
	return out, err
}

// Release has a mass flip of a service that is held believed.
func (r *Remote) Release(ctx context.Context, service string) (Released, error) {
	var out Released
	u := r.base.JoinPath("v1", "services", url.PathEscape(service), "health", "release")
	err := r.do(ctx, http.MethodPut, u, http.NoBody, &out)
	return out, err
}

// SetHealth says how an endpoint is: healthy, unhealthy or draining, whatever
// the configuration and checkers say; isobar.Unknown takes that back. An answer
// with a Reason is of a write that is kept and that no plan has yet.
// A drain that what is left can't carry is refused, unless it is forced.
func (r *Remote) SetHealth(ctx context.Context, h *isobar.HealthOverride, force bool) (Published, error) {
	var out Published
	u := r.base.JoinPath("v1", "services", url.PathEscape(h.Service), "endpoints", url.PathEscape(h.Address), "health")
	query := url.Values{}
	for name, value := range map[string]string{"who": h.Who, "reason": h.Reason} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if force {
		query.Set("force", "true")
	}
	u.RawQuery = query.Encode()
	if h.Status == isobar.Unknown {
		err := r.do(ctx, http.MethodDelete, u, http.NoBody, &out)
		return out, err
	}
	err := r.do(ctx, http.MethodPut, u, strings.NewReader(h.Status.String()), &out)
	return out, err
}

// Preview asks what a configuration file would change.
func (r *Remote) Preview(ctx context.Context, data []byte) (Previewed, error) {
	var out Previewed
	err := r.do(ctx, http.MethodPost, r.base.JoinPath("/v1/plan"), bytes.NewReader(data), &out)
	return out, err
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

// Record asks for a trace of a length and returns it as it comes, to be closed. A
// server that does not begin, or does not end when it should, is given up.
func (r *Remote) Record(ctx context.Context, length time.Duration) (io.ReadCloser, error) {
	bounded, cancel := context.WithTimeout(ctx, length+recordPatience)
	stream, err := r.record(ctx, bounded, cancel, length)
	if err != nil {
		cancel()
		return nil, err
	}
	return &recordStream{ReadCloser: stream, end: cancel}, nil
}

// record sends the request within bounded, which cancel ends; ctx is the caller's.
func (r *Remote) record(ctx, bounded context.Context, cancel func(), length time.Duration) (io.ReadCloser, error) {
	u := r.base.JoinPath("/v1/record")
	u.RawQuery = url.Values{"for": {length.String()}}.Encode()
	req, err := http.NewRequestWithContext(bounded, http.MethodPost, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	client := *r.client
	client.Timeout = 0 // bounded has it
	begin := time.AfterFunc(recordPatience, cancel)
	resp, err := client.Do(req)
	late := !begin.Stop()
	if err != nil {
		if late && ctx.Err() == nil {
			return nil, fmt.Errorf("%s has not begun to answer within %s: its process may be stuck", req.URL.Host, recordPatience)
		}
		return nil, r.unanswered(ctx, req.URL.Host, err)
	}
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == mediaTrace {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxHealthBytes<<4))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", r.base.Host, err)
	}
	if resp.StatusCode == http.StatusOK {
		return nil, fmt.Errorf("%s does not answer as an isobar admin interface", r.base.Host)
	}
	return nil, refusal(resp.StatusCode, answer)
}

// Mark has charts mark a moment, and returns it as it is kept.
func (r *Remote) Mark(ctx context.Context, o MarkRequest) (SampleMark, error) {
	return posted[SampleMark](ctx, r, "/v1/marks", o)
}

// StepDown has the leader of the group give up leadership.
func (r *Remote) StepDown(ctx context.Context, o OperatorRequest) (SteppedDown, error) {
	return posted[SteppedDown](ctx, r, "/v1/replicas/step-down", o)
}

// AcceptConfig puts the configuration of the leader in force without a majority.
func (r *Remote) AcceptConfig(ctx context.Context, o AcceptConfigRequest) (AcceptedConfig, error) {
	return posted[AcceptedConfig](ctx, r, "/v1/replicas/accept-config", o)
}
