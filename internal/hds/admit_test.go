package hds_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
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

// TestWhoMayStillCheck: streams are asked about again, also the one that was
// being let in by the rules of before, and those that are welcome stay. Who polls
// is asked at each request.
func TestWhoMayStillCheck(t *testing.T) {
	var banned, during atomic.Value
	banned.Store("")
	during.Store(func() {})
	inBubble(t, hds.Options{Admit: func(_ context.Context, n rpc.Node) error {
		if n.Locality.String() == banned.Load() {
			return status.Error(codes.PermissionDenied, "not from "+n.Locality.String()+" any more")
		}
		during.Load().(func())()
		return nil
	}}, func(h *harness) {
		denied := func(c *client, from string) {
			t.Helper()
			if _, err := c.stream.Recv(); status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "not from "+from+" any more" {
				t.Errorf("%s got %v", from, err)
			}
		}
		h.enter("stays", "r/a")
		goes := h.enter("goes", "r/b")
		h.open() // says nothing yet
		api := healthv3.NewHealthDiscoveryServiceClient(h.conn)
		if _, err := api.FetchHealthCheck(h.t.Context(), hello("poller", "r/a")); err != nil {
			t.Fatal(err)
		}
		banned.Store("r/b")
		h.srv.Reauthorize()
		denied(goes, "r/b")
		during.Store(func() {
			during.Store(func() {})
			banned.Store("r/c")
			h.srv.Reauthorize()
		})
		denied(h.enter("late", "r/c"), "r/c")
		synctest.Wait()
		present := h.srv.Checkers(time.Now())
		if len(present) != 2 || present[0].NodeID != "poller" || present[1].NodeID != "stays" {
			t.Errorf("connected: %+v", present)
		}
	})
}

// Messages that no checker can mean end the stream.
func TestImpossibleMessages(t *testing.T) {
	expect := func(t *testing.T, c *client, code codes.Code, text string) {
		t.Helper()
		_, err := c.stream.Recv()
		if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
			t.Errorf("ended with %v, want %v naming %q", err, code, text)
		}
		c.cancel()
	}
	inBubble(t, hds.Options{}, func(h *harness) {
		c := h.open()
		c.send(hello("", "r/a"))
		expect(t, c, codes.InvalidArgument, "node.id")

		c = h.open()
		long := hello("x", "r/a")
		long.GetHealthCheckRequest().Node.Locality.Zone = strings.Repeat("z", 300)
		c.send(long)
		expect(t, c, codes.InvalidArgument, "node.locality.zone")

		ok := h.enter("probe-1", "r/a")
		ok.report(&response{ClusterEndpointsHealth: slices.Repeat([]*healthv3.ClusterEndpointsHealth{{ClusterName: "x"}}, 20_001)})
		expect(t, ok, codes.InvalidArgument, "cluster_endpoints_health")
	})
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (bytesCodec) Unmarshal([]byte, any) error   { return nil }
func (bytesCodec) Name() string                  { return "proto" }

// Builds before the end of 2018 send a bare request as the first message.
func TestBareFirstMessage(t *testing.T) {
	inBubble(t, hds.Options{}, func(h *harness) {
		open := func(first []byte) grpc.ClientStream {
			desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
			s, err := h.conn.NewStream(h.t.Context(), desc, healthv3.HealthDiscoveryService_StreamHealthCheck_FullMethodName, grpc.ForceCodec(bytesCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.SendMsg(first); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return s
		}
		s := open(raw(t, hello("old-1", "r/a").GetHealthCheckRequest()))
		list := h.srv.Checkers(time.Now())
		if len(list) != 1 || list[0].ID != "old-1" || list[0].Locality != isobar.MustLocality("r/a") || list[0].Protocols.String() != "http+tcp" {
			t.Errorf("checkers %+v", list)
		}
		// Garbage ends its own stream only.
		var ignored []byte
		if err := open([]byte{0xff, 0xff, 0xff}).RecvMsg(&ignored); status.Code(err) != codes.InvalidArgument {
			t.Errorf("garbage first: %v", err)
		}
		if err := s.SendMsg([]byte{0xff, 0xff}); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&ignored); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "message:") {
			t.Errorf("garbage later: %v", err)
		}
	})
}

// TestCheckersOfOneAddress: half of the room is for others.
func TestCheckersOfOneAddress(t *testing.T) {
	account := "address a"
	inBubble(t, hds.Options{MaxStreams: 4, Account: func(context.Context) string { return account }}, func(h *harness) {
		h.enter("one", "r/a")
		two := h.enter("two", "r/a")
		c := h.open()
		c.send(hello("three", "r/a"))
		if _, err := c.stream.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "from one address") {
			t.Errorf("the third of one address: %v", err)
		}
		two.leave()
		synctest.Wait()
		h.enter("four", "r/a")
		account = "" // one that shows who it is
		h.enter("five", "r/a")
		h.enter("six", "r/a")
	})
}
