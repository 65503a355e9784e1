package xds_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func TestBadRequestsEndTheirStreamOnly(t *testing.T) {
	long := strings.Repeat("x", 3000)
	many := make([]string, 11)
	for i := range many {
		many[i] = fmt.Sprint("s", i)
	}
	for _, tc := range []struct {
		name, method string
		request      *discoveryv3.DiscoveryRequest
		says         string
	}{
		{"no type", adsMethod, &discoveryv3.DiscoveryRequest{}, "type_url: missing"},
		{"odd type", adsMethod, &discoveryv3.DiscoveryRequest{TypeUrl: "clusters"}, `type_url: "clusters", want type.googleapis.com/`},
		{"other type", edsMethod, &discoveryv3.DiscoveryRequest{TypeUrl: cdsURL}, "on a stream for envoy.config.endpoint.v3.ClusterLoadAssignment"},
		{"long type", adsMethod, &discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/" + long}, "type_url: 3020 bytes"},
		{"long name", adsMethod, &discoveryv3.DiscoveryRequest{TypeUrl: edsURL, ResourceNames: []string{long}}, "resource_names: name 0 is 3000 bytes long, want at most 2048"},
		{"many names", adsMethod, &discoveryv3.DiscoveryRequest{TypeUrl: edsURL, ResourceNames: many}, "resource_names: 11 names, want at most 10"},
		{"locators", adsMethod, &discoveryv3.DiscoveryRequest{TypeUrl: edsURL, ResourceLocators: []*discoveryv3.ResourceLocator{{Name: "a"}}}, "resource_locators: not supported"},
		{"long nonce", adsMethod, &discoveryv3.DiscoveryRequest{TypeUrl: edsURL, ResponseNonce: long}, "response_nonce: 3000 bytes"},
		{"long version", adsMethod, &discoveryv3.DiscoveryRequest{TypeUrl: edsURL, VersionInfo: long}, "version_info: 3000 bytes"},
		{"long node", adsMethod, &discoveryv3.DiscoveryRequest{TypeUrl: edsURL, Node: &corev3.Node{Id: long}}, "node.id: 3000 bytes"},
		{"long zone", adsMethod, &discoveryv3.DiscoveryRequest{TypeUrl: edsURL, Node: &corev3.Node{Locality: &corev3.Locality{Zone: long}}}, "node.locality.zone: 3000 bytes long, want at most 253"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.publish(serve("a", 1))
				good := w.ads(at("us-east/b"))
				good.request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
				bad := w.open(tc.method, nil, true)
				bad.send(tc.request)
				got := bad.status()
				if got.Code() != codes.InvalidArgument || !strings.Contains(got.Message(), tc.says) {
					w.t.Errorf("got %v: %s, want INVALID_ARGUMENT with %q", got.Code(), got.Message(), tc.says)
				}
				w.publish(serve("a", 2))
				good.equals("eds v2: a@2")
			}, func(o *xds.Options) { o.Limits = resource.Limits{Names: 10} })
		})
	}
}

func TestBadDeltaRequests(t *testing.T) {
	for _, tc := range []struct {
		request *discoveryv3.DeltaDiscoveryRequest
		says    string
	}{
		{&discoveryv3.DeltaDiscoveryRequest{TypeUrl: edsURL, ResourceNamesSubscribe: []string{strings.Repeat("a", 3000)}}, "resource_names_subscribe: name 0 is 3000 bytes"},
		{&discoveryv3.DeltaDiscoveryRequest{TypeUrl: edsURL, ResourceNamesUnsubscribe: []string{strings.Repeat("a", 3000)}}, "resource_names_unsubscribe: name 0 is 3000 bytes"},
		{&discoveryv3.DeltaDiscoveryRequest{TypeUrl: edsURL, InitialResourceVersions: map[string]string{strings.Repeat("a", 3000): "1"}}, "initial_resource_versions: a name is 3000 bytes"},
		{&discoveryv3.DeltaDiscoveryRequest{TypeUrl: edsURL, InitialResourceVersions: map[string]string{"a": strings.Repeat("1", 2000)}}, `the version of "a" is 2000 bytes`},
		{&discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: edsURL, ResourceLocatorsSubscribe: []*discoveryv3.ResourceLocator{{Name: "a"}},
		}, "resource_locators_subscribe: not supported"},
	} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := w.delta(nil)
			c.send(tc.request)
			if got := c.status(); got.Code() != codes.InvalidArgument || !strings.Contains(got.Message(), tc.says) {
				w.t.Errorf("got %v: %s, want INVALID_ARGUMENT with %q", got.Code(), got.Message(), tc.says)
			}
		})
	}
}

// Delta requests add up; a limit on each of them alone would be none.
func TestDeltaNamesOfAStreamAreLimited(t *testing.T) {
	limit := func(o *xds.Options) { o.Limits.Names = 3 }
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.delta(at("us-east/b"))
		c.subscribe(edsURL, "a", "x1", "x2").subscribe(edsURL, "x3", "-x1").subscribe(edsURL, "x4", "-x2")
		if got := c.status(); got.Code() != codes.OK {
			t.Fatalf("names that come and go: %v", got)
		}
		c.subscribe(edsURL, "x5", "x6")
		if got := c.status(); got.Code() != codes.InvalidArgument || !strings.Contains(got.Message(), "resource_names_subscribe") {
			t.Errorf("5 names: %v", got)
		}
	}, limit)
}

// Names that come and go must not pile up, while an answer is awaited or
// while nothing is published.
func TestNamesThatCameAndWentAreForgotten(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, acked := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			c := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1")
			nonce := ""
			if acked {
				c.ack(edsURL).nothing()
				nonce = c.kind(edsURL).nonce
			}
			before := heap()
			for i := range 20 {
				names := make([]string, 5000)
				for j := range names {
					names[j] = fmt.Sprintf("the-name-of-a-service-that-nobody-has-%d-%d", i, j)
				}
				c.send(&discoveryv3.DiscoveryRequest{TypeUrl: edsURL, ResponseNonce: nonce, ResourceNames: names})
			}
			c.send(&discoveryv3.DiscoveryRequest{TypeUrl: edsURL, ResponseNonce: nonce, ResourceNames: []string{"a"}})
			synctest.Wait()
			if grown := heap() - before; grown > 8<<20 {
				t.Errorf("acked %v: 100,000 names left %d KiB behind", acked, grown>>10)
			}
			if n := len(w.server.Subscriptions()); n != 1 {
				t.Errorf("acked %v: %d subscriptions, want 1", acked, n)
			}
			// What is still subscribed is answered and followed.
			if !acked {
				c.ack(edsURL)
			}
			c.equals("eds v1: a@1").ack(edsURL)
			w.publish(serve("a", 2))
			c.equals("eds v2: a@2")
		})
	}
}

// panickyPlan fails for one locality.
type panickyPlan struct {
	*testPlan

	fails isobar.Locality
}

func (p panickyPlan) Assignment(service string, source isobar.Locality) *isobar.Assignment {
	if source == p.fails {
		panic("a defect")
	}
	return p.testPlan.Assignment(service, source)
}

// A defect costs those whom it concerns, not the process.
func TestPanicsAreContained(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		east := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		west := w.ads(at("us-west/a")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		synctest.Wait()
		serve("a", 2)(w.plan)
		w.plan.version = "v2"
		w.set = w.builder.Build(panickyPlan{w.plan, isobar.MustLocality("us-east/b")}, w.set)
		w.server.Publish(w.set)
		west.equals("eds v2: a@2").ack(edsURL).nothing()
		east.nothing()
		late := w.ads(at("us-east/b")).request(edsURL, "a")
		if got := late.status(); got.Code() != codes.Internal {
			t.Errorf("a stream that meets the defect: %v", got)
		}
		w.version = 2
		w.publish()
		east.equals("eds v3: a@2").ack(edsURL).nothing()
		west.nothing()
	})
}

func TestTooManyTypesOnAStream(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(nil)
		for i := range 17 {
			c.request(fmt.Sprintf("type.googleapis.com/some.Type%d", i), "a")
		}
		if got := c.status(); got.Code() != codes.InvalidArgument || !strings.Contains(got.Message(), "more than 16 types") {
			w.t.Errorf("got %v", got)
		}
	})
}

func TestStreamsAndLocalitiesAreLimited(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		one := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1")
		// Another locality than the one that fits.
		other := w.ads(at("eu-west/a")).request(edsURL, "a")
		if got := other.status(); got.Code() != codes.ResourceExhausted || !strings.Contains(got.Message(), "too many client localities") {
			w.t.Errorf("second locality: %v", got)
		}
		two := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1")
		three := w.ads(at("us-east/b"))
		if got := three.status(); got.Code() != codes.ResourceExhausted || !strings.Contains(got.Message(), "too many streams") {
			w.t.Errorf("third stream: %v", got)
		}
		one.close()
		two.close()
		// What has gone makes room.
		w.ads(at("eu-west/a")).request(edsURL, "a").equals("eds v1: a@1")
	}, func(o *xds.Options) { o.MaxStreams, o.MaxLocalities = 2, 1 })
}

func TestStreamsWaitForTheFirstPlanForABoundedTime(t *testing.T) {
	inWorld(t, func(w *world) {
		early := w.ads(at("us-east/b")).request(edsURL, "a").nothing()
		w.publish(serve("a", 1))
		early.equals("eds v1: a@1")
	})
	inWorld(t, func(w *world) {
		c := w.ads(at("us-east/b")).request(edsURL, "a").nothing()
		<-time.After(10 * time.Second)
		if got := c.status(); got.Code() != codes.Unavailable || !strings.Contains(got.Message(), "nothing is published yet") {
			w.t.Errorf("after the wait: %v", got)
		}
	})
}

// A stream takes up room; one that asks for nothing does not keep it.
func TestSilentStreamsEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		silent := w.ads(at("us-east/b"))
		asking := w.ads(at("us-east/b"))
		<-time.After(29 * time.Second)
		asking.request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		if got := silent.status(); got.Code() != codes.OK {
			t.Errorf("after 29 s: %v", got)
		}
		<-time.After(time.Hour)
		if got := silent.status(); got.Code() != codes.DeadlineExceeded {
			t.Errorf("a stream that never asked: %v", got)
		}
		w.publish(serve("a", 2))
		asking.equals("eds v2: a@2")
	})
}

// TestStreamsThatWaitForTheirTurnAreNotSilent asserts that a stream is not ended as one that asks
// for nothing while its first request waits until others have been handled.
func TestStreamsThatWaitForTheirTurnAreNotSilent(t *testing.T) {
	var handle chan struct{}
	inWorld(t, func(w *world) {
		handle = make(chan struct{})
		w.publish(serve("a", 1))
		var all []*client
		for range 20 { // more than are handled at once
			c := w.ads(at("us-east/b"))
			c.want(edsURL, "a")
			all = append(all, c)
		}
		<-time.After(time.Hour)
		for _, c := range all {
			if got := c.status(); got.Code() != codes.OK {
				t.Errorf("a stream that waits for its turn: %v", got)
			}
		}
		close(handle)
		for _, c := range all {
			c.equals("eds v1: a@1")
		}
	}, func(o *xds.Options) {
		o.Admit = func(context.Context, rpc.Node) error {
			<-handle
			return nil
		}
	})
}

func TestRemovalWaitIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 2))
		c := w.ads(at("us-east/b"))
		c.request(cdsURL).equals("cds v1: a b").ack(cdsURL)
		c.request(ldsURL, "a", "b").equals("lds v1: a b") // and never accepts it
		w.publish(without("b"))
		c.nothing()
		<-time.After(10 * time.Second)
		c.equals("cds v2: a")
	})
}

func TestStopEndsStreams(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1")
		waiting := w.ads(at("us-east/b")) // has said nothing yet
		synctest.Wait()
		w.server.Stop()
		for _, c := range []*client{c, waiting} {
			if got := c.status(); got.Code() != codes.Unavailable {
				w.t.Errorf("got %v, want UNAVAILABLE", got)
			}
		}
		late := w.ads(at("us-east/b"))
		if got := late.status(); got.Code() != codes.Unavailable {
			w.t.Errorf("a new stream: %v, want UNAVAILABLE", got)
		}
		w.publish(serve("a", 2)) // of no effect, and no harm
		if n := len(w.server.Clients()); n != 0 {
			w.t.Errorf("%d clients are left", n)
		}
	})
}

// A client that sends its requests, says that this was all, and reads: as
// command line tools do.
func TestHalfClosedStreamIsAnswered(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(at("us-east/b")).request(edsURL, "a")
		if err := c.stream.CloseSend(); err != nil {
			w.t.Fatal(err)
		}
		c.equals("eds v1: a@1")
		if got := c.status(); got.Code() != codes.OK {
			w.t.Errorf("got %v, want OK", got)
		}
	})
}

// Bytes that are no message, and a message beyond the limit of the server.
func TestMalformedAndOversizedMessages(t *testing.T) {
	for says, data := range map[string][]byte{
		"unmarshal":         {0xff, 0xff, 0xff},
		"larger than max":   make([]byte, 5<<20),
		"invalid UTF-8":     {0x0a, 0x01, 0xff}, // version_info
		"type_url: missing": {},
	} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1))
			good := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
			s, err := w.conn.NewStream(w.t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, adsMethod,
				grpc.ForceCodecV2(rpc.ServerCodec()))
			if err != nil {
				w.t.Fatal(err)
			}
			if err := s.SendMsg(&rpc.Frame{Pieces: mem.BufferSlice{mem.SliceBuffer(data)}}); err != nil && !errors.Is(err, io.EOF) {
				w.t.Fatal(err)
			}
			if err := s.RecvMsg(&rpc.RawMessage{}); err == nil || !strings.Contains(err.Error(), says) {
				w.t.Errorf("got %v, want %q", err, says)
			}
			w.publish(serve("a", 2))
			good.equals("eds v2: a@2")
		})
	}
}
