package server_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestRequestsWithoutMessage: requests that are begun and left take a bounded
// number of goroutines, are told of and end; health checks get in beside them,
// and other requests after them.
func TestRequestsWithoutMessage(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		const most, begun = 1000, 1800
		client, health := statusv3.NewClientStatusDiscoveryServiceClient(w.conn), healthpb.NewHealthClient(w.conn)
		if _, err := client.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{}); err != nil {
			t.Fatal(err)
		}
		before := runtime.NumGoroutine()
		for n := range begun / 900 {
			p := w.peer()
			defer func() { _ = p.Close() }()
			go p.answer()
			for i := range 900 {
				var own [][2]string
				if i%2 == 1 {
					own = [][2]string{{"grpc-timeout", "99999999H"}} // must not be believed
				}
				if _, err := p.begin(statusv3.ClientStatusDiscoveryService_FetchClientStatus_FullMethodName, own...); err != nil {
					t.Fatalf("peer %d, request %d: %v", n, i, err)
				}
			}
		}
		synctest.Wait()
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > most+50 {
			t.Errorf("%d goroutines for %d requests", n, begun)
		}
		_, err := client.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{})
		st := status.Convert(err)
		if st.Code() != codes.ResourceExhausted || !strings.Contains(st.Message(), "too many open streams of one peer") || len(st.Details()) != 1 {
			t.Fatalf("one more: %v", err)
		}
		if _, ok := st.Details()[0].(*errdetails.RetryInfo); !ok {
			t.Errorf("no advice when to come back: %v", st.Details())
		}
		if _, err := health.Check(w.t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("a health check beside them: %v", err)
		}
		time.Sleep(30 * time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 50 {
			t.Errorf("%d goroutines are left", n)
		}
		if _, err := client.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{}); err != nil {
			t.Errorf("after them: %v", err)
		}
		refused := testhelp.Series(t, w.server.Metrics(), "isobar_admission_refused_total")
		if refused["no_message,stream"] != most || refused["peer_streams,stream"] != begun-most+1 {
			t.Errorf("refused: %v", refused)
		}
	})
}
