package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// Pause freezes the weights of a service, or of all for an empty name.
func (r *Remote) Pause(ctx context.Context, o Order) (Operated, error) {
	return r.order(ctx, "/v1/pause", o)
}

// Resume takes a pause back; all of them for an empty service.
func (r *Remote) Resume(ctx context.Context, o Order) (Operated, error) {
	return r.order(ctx, "/v1/resume", o)
}

// Rollback returns to the weights of an earlier version and pauses.
func (r *Remote) Rollback(ctx context.Context, o Order) (Operated, error) {
	return r.order(ctx, "/v1/rollback", o)
}

// Reload has the server read its configuration file again, and confirms what is
// held of it.
func (r *Remote) Reload(ctx context.Context, o Order) (Reloaded, error) {
	return posted[Reloaded](ctx, r, "/v1/reload", o)
}

func (r *Remote) order(ctx context.Context, path string, o Order) (Operated, error) {
	return posted[Operated](ctx, r, path, o)
}

// posted sends an order and gives the answer.
func posted[T any](ctx context.Context, r *Remote, path string, o any) (out T, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return out, err
	}
	err = r.do(ctx, http.MethodPost, r.base.JoinPath(path), bytes.NewReader(body), &out)
	return out, err
}

// Status asks whether everything is in order.
func (r *Remote) Status(ctx context.Context) (Status, error) {
	var out Status
	err := r.get(ctx, "/v1/status", nil, &out)
	return out, err
}

// History asks what changed a service, or for every change for an empty name.
func (r *Remote) History(ctx context.Context, service string) (ChangeList, error) {
	var out ChangeList
	query := url.Values{}
	if service != "" {
		query.Set("service", service)
	}
	err := r.get(ctx, "/v1/history", query, &out)
	return out, err
}
