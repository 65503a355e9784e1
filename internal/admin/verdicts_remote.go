package admin

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/isobar-xds/isobar"
)

// Release has a mass flip of a service that is held believed.
func (r *Remote) Release(ctx context.Context, service string) (Released, error) {
	var out Released
	u := r.base.JoinPath("v1", "services", url.PathEscape(service), "health", "release")
	err := r.do(ctx, http.MethodPut, u, http.NoBody, &out)
	return out, err
}

// Overrides asks for the health that operators set, sorted by service and
// address.
func (r *Remote) Overrides(ctx context.Context) ([]isobar.HealthOverride, error) {
	var out HealthList
	err := r.get(ctx, "/v1/health", nil, &out)
	return out.Overrides, err
}

// SetHealth says how an endpoint is: healthy, unhealthy or draining, whatever
// the configuration and checkers say; isobar.Unknown takes that back. An answer
// with a Reason is of a write that is kept and that no plan has yet.
// A drain that what is left can't carry is refused, unless it is forced.
func (r *Remote) SetHealth(ctx context.Context, service, address string, status isobar.HealthStatus, force bool) (Published, error) {
	var out Published
	u := r.base.JoinPath("v1", "services", url.PathEscape(service), "endpoints", url.PathEscape(address), "health")
	if force {
		u.RawQuery = url.Values{"force": {"true"}}.Encode()
	}
	if status == isobar.Unknown {
		err := r.do(ctx, http.MethodDelete, u, http.NoBody, &out)
		return out, err
	}
	err := r.do(ctx, http.MethodPut, u, strings.NewReader(status.String()), &out)
	return out, err
}
