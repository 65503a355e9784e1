package hds_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// TestFewMessagesAreReadAtOnce asserts that few messages of checkers are decoded and handled at
// once, on streams and of those that poll.
func TestFewMessagesAreReadAtOnce(t *testing.T) {
	const checkers, atOnce = 20, 4
	var asked atomic.Int64
	var answer chan struct{}
	inBubble(t, hds.Options{Admit: func(context.Context, rpc.Node) error {
		asked.Add(1)
		<-answer
		asked.Add(-1)
		return nil
	}}, func(h *harness) {
		answer = make(chan struct{})
		var polls sync.WaitGroup
		var open []*client
		for i := range checkers {
			open = append(open, h.enter(fmt.Sprint("c", i), "r/a"))
			polls.Go(func() {
				if _, err := healthv3.NewHealthDiscoveryServiceClient(h.conn).FetchHealthCheck(h.t.Context(), hello(fmt.Sprint("p", i), "r/a")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := asked.Load(); n != atOnce {
			t.Errorf("%d messages are handled at once, want %d", n, atOnce)
		}
		close(answer)
		polls.Wait()
		synctest.Wait()
		for _, c := range open {
			c.leave()
		}
	})
}

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
