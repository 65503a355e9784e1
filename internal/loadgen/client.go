package loadgen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

const (
	adsMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	edsMethod = "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"
)

// retryDelay is the mean time until a client opens a stream again; how long it
// is differs by half of it either way.
const retryDelay = time.Second

// client is one synthetic client.
type client struct {
	id            int
	run           *run
	names         []string // of the services that it subscribes to
	node          []byte   // encoded
	subscriptions []subscription

	begun    atomic.Bool // it has tried to connect
	answered atomic.Bool // it has an assignment, on its present connection

	mu       sync.Mutex
	assigned []*assignment // by name; nil = none yet
	carry    []float64     // by name: requests that were no whole one yet
}

// newNode encodes the node of a client.
func newNode(id string, l isobar.Locality, on Streams) ([]byte, error) {
	agent := "isobar-bench"
	if on == EachADS { // only gRPC does so
		agent = "gRPC isobar-bench"
	}
	n := &corev3.Node{
		Id: id, Cluster: "isobar-bench", UserAgentName: agent,
		ClientFeatures: []string{"envoy.lrs.supports_send_all_clusters"},
	}
	if !l.IsZero() {
		n.Locality = &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
	}
	return proto.Marshal(n)
}

// subscription is what a client asks for on one stream.
type subscription struct {
	method string
	// Names and type URL, as every request repeats them; no clusters outside of ADS.
	clusters, endpoints []byte
}

// subscriptions are those of a client of these services.
func subscriptions(names []string, on Streams) []subscription {
	if on == SharedADS {
		return []subscription{{adsMethod, requestFor(names, resource.ClusterURL), requestFor(names, resource.EndpointsURL)}}
	}
	out := make([]subscription, len(names))
	for i := range names {
		one := names[i : i+1]
		out[i] = subscription{method: edsMethod, endpoints: requestFor(one, resource.EndpointsURL)}
		if on == EachADS {
			out[i].method, out[i].clusters = adsMethod, requestFor(one, resource.ClusterURL)
		}
	}
	return out
}

// requestFor encodes what all requests for a type have in common.
func requestFor(names []string, url string) []byte {
	var b []byte
	for _, n := range names {
		b = protowire.AppendTag(b, fieldNames, protowire.BytesType)
		b = protowire.AppendString(b, n)
	}
	b = protowire.AppendTag(b, fieldTypeURL, protowire.BytesType)
	return protowire.AppendString(b, url)
}

// first is the first request on a stream, with the node.
func first(node, subscription []byte) []byte {
	b := protowire.AppendTag(nil, fieldNode, protowire.BytesType)
	return append(protowire.AppendBytes(b, node), subscription...)
}

// answer acknowledges a response or, with a reason, refuses it. version is what
// the client has. Fields are in their order, as clients encode them.
func answer(version, nonce string, subscription []byte, refused error) [][]byte {
	var head []byte
	if version != "" {
		head = protowire.AppendTag(nil, fieldVersion, protowire.BytesType)
		head = protowire.AppendString(head, version)
	}
	tail := protowire.AppendTag(nil, fieldNonce, protowire.BytesType)
	tail = protowire.AppendString(tail, nonce)
	if refused != nil {
		st := protowire.AppendTag(nil, fieldStatusCode, protowire.VarintType)
		st = protowire.AppendVarint(st, uint64(codes.InvalidArgument))
		st = protowire.AppendTag(st, fieldStatusMessage, protowire.BytesType)
		st = protowire.AppendString(st, refused.Error())
		tail = protowire.AppendTag(tail, fieldErrorDetail, protowire.BytesType)
		tail = protowire.AppendBytes(tail, st)
	}
	return [][]byte{head, subscription, tail}
}

// discover keeps the discovery streams open until ctx ends. began is when the
// client wanted its assignments.
func (c *client) discover(ctx context.Context, conn *grpc.ClientConn, began time.Time) {
	var streams sync.WaitGroup
	for i := range c.subscriptions {
		s := &c.subscriptions[i]
		streams.Go(func() { c.again(ctx, func() error { return c.discovery(ctx, conn, s, began) }) })
	}
	streams.Wait()
}

// again calls stream until ctx ends, with pauses as the server asks for.
func (c *client) again(ctx context.Context, stream func() error) {
	for {
		err := stream()
		if ctx.Err() != nil {
			return
		}
		c.run.results.failed(err)
		timer := time.NewTimer(retryAfter(err))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// retryAfter is how long to wait after an error.
func retryAfter(err error) time.Duration {
	wait := retryDelay
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			wait = max(wait, info.GetRetryDelay().AsDuration())
		}
	}
	return wait/2 + rand.N(wait) //nolint:gosec // jitter
}

var bidirectional = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// send sends the pieces of a message. Only the stream's receiver may call it.
func send(s grpc.ClientStream, pieces ...[]byte) error {
	err := s.SendMsg(frame(pieces...))
	// Of a stream that has ended, sending only says io.EOF, and receiving says why.
	for errors.Is(err, io.EOF) {
		if why := s.RecvMsg(&rpc.RawMessage{}); why != nil {
			return why
		}
	}
	return err
}

// frame is a message that is encoded already.
func frame(pieces ...[]byte) *rpc.Frame {
	f := &rpc.Frame{Pieces: make(mem.BufferSlice, len(pieces))}
	for i, p := range pieces {
		f.Pieces[i] = mem.SliceBuffer(p)
	}
	return f
}

// discovery is one discovery stream, until it ends.
func (c *client) discovery(ctx context.Context, conn *grpc.ClientConn, on *subscription, began time.Time) error {
	s, err := conn.NewStream(ctx, bidirectional, on.method)
	if err != nil {
		return err
	}
	d := discovered{on: on, clusters: on.clusters == nil}
	begin := on.clusters
	if d.clusters {
		begin = on.endpoints
	}
	if err := send(s, first(c.node, begin)); err != nil {
		return err
	}
	for {
		r := response{catalog: c.run.catalog}
		if err := s.RecvMsg(&r); err != nil {
			return err
		}
		var reply [][]byte
		switch r.url {
		case resource.ClusterURL:
			if !d.clusters {
				d.clusters = true
				if err := send(s, on.endpoints); err != nil {
					return err
				}
			}
			reply = answer(r.version, r.nonce, on.clusters, nil)
		case resource.EndpointsURL:
			reply = c.took(&r, &d, began)
		default:
			continue
		}
		if err := send(s, reply...); err != nil {
			return err
		}
	}
}

// discovered is what a stream has brought so far.
type discovered struct {
	on        *subscription
	clusters  bool   // the first response on clusters
	endpoints bool   // the first one on endpoints
	version   string // of the endpoints that were accepted last
}

// took takes assignments and returns the answer to them.
func (c *client) took(r *response, d *discovered, began time.Time) [][]byte {
	results := c.run.results
	for _, a := range r.assignments {
		if a.refused != nil {
			err := fmt.Errorf("%s: %w", a.service, a.refused)
			results.nacked(err)
			return answer(d.version, r.nonce, d.on.endpoints, err)
		}
	}
	now := time.Now()
	c.mu.Lock()
	for _, a := range r.assignments {
		for i, name := range c.names { // few
			if name == a.service {
				c.assigned[i] = a
			}
		}
	}
	c.mu.Unlock()
	if d.endpoints {
		results.pushed(r.version, r.size, now)
	} else {
		d.endpoints = true
		// Of one of many streams the client waits for the last.
		if (len(c.subscriptions) == 1 || c.complete()) && !c.answered.Swap(true) {
			results.first(now.Sub(began))
		}
	}
	d.version = r.version
	return answer(r.version, r.nonce, d.on.endpoints, nil)
}

// complete reports whether the client has an assignment of each service.
func (c *client) complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.assigned {
		if a == nil {
			return false
		}
	}
	return true
}
