package hds_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
)

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
