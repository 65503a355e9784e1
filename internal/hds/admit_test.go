package hds_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// TestWhoMayCheck: a checker that is not welcome is told why, on a stream, when
// it polls, and when it uses the name of one that polls.
func TestWhoMayCheck(t *testing.T) {
	welcome := "r/a"
	inBubble(t, hds.Options{Admit: func(_ context.Context, n rpc.Node) error {
		if n.Locality.String() != welcome {
			return status.Error(codes.PermissionDenied, "not from "+n.Locality.String())
		}
		return nil
	}}, func(h *harness) {
		denied := func(what string, err error) {
			t.Helper()
			if s := status.Convert(err); s.Code() != codes.PermissionDenied || !strings.HasPrefix(s.Message(), "not from r/") {
				t.Errorf("%s: got %v", what, err)
			}
		}
		c := h.enter("stranger", "r/b")
		_, err := c.stream.Recv()
		denied("stream", err)
		api := healthv3.NewHealthDiscoveryServiceClient(h.conn)
		_, err = api.FetchHealthCheck(h.t.Context(), hello("stranger", "r/b"))
		denied("poll", err)
		if _, err := api.FetchHealthCheck(h.t.Context(), hello("poller", "r/a")); err != nil {
			t.Fatal(err)
		}
		welcome = "r/c"
		_, err = api.FetchHealthCheck(metadata.AppendToOutgoingContext(h.t.Context(), hds.CheckerHeader, "poller"), &request{})
		denied("report", err)
		w := httptest.NewRecorder()
		body := strings.NewReader(`{"health_check_request": {"node": {"id": "x", "locality": {"region": "r", "zone": "b"}}}}`)
		h.srv.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, rpc.CheckerPath, body))
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "not from r/b") {
			t.Errorf("REST: %d %s", w.Code, w.Body)
		}
	})
}
