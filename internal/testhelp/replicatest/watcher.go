package replicatest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar"
)

// watcher is a bare stream client that reconnects as clients do, and tells what a
// client must never see.
type watcher struct {
	address  string
	locality isobar.Locality
	newest   map[string]uint64 // version by type URL
	contents *contents
	last     atomic.Uint64
	streams  atomic.Int64
	faults   chan string
}

// contents are what all watchers of a load got, which ask for the same: the digest by
// type URL and version.
type contents struct {
	mu   sync.Mutex
	seen map[string][sha256.Size]byte
}

// differs takes a content, and reports whether the same version had another one.
func (c *contents) differs(url, version string, content []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, sum := url+" "+version, sha256.Sum256(content)
	before, ok := c.seen[key]
	c.seen[key] = sum
	return ok && before != sum
}

func newWatcher(address string, l isobar.Locality, c *contents) *watcher {
	return &watcher{address: address, locality: l, newest: map[string]uint64{}, contents: c, faults: make(chan string, 100)}
}

func (w *watcher) faultf(format string, args ...any) {
	select {
	case w.faults <- fmt.Sprintf(format, args...):
	default:
	}
}

const (
	clusterURL  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.stream(ctx) // it is opened again
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (w *watcher) stream(ctx context.Context) error {
	conn, err := grpc.NewClient(w.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	w.streams.Add(1)
	node := &corev3.Node{Id: "watcher", Cluster: "watchers", Locality: &corev3.Locality{Region: w.locality.Region, Zone: w.locality.Zone}}
	names := map[string][]string{clusterURL: nil, endpointURL: {"checkout"}}
	for _, url := range []string{clusterURL, endpointURL} {
		shown := ""
		if v := w.newest[url]; v > 0 {
			shown = strconv.FormatUint(v, 10)
		}
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url, ResourceNames: names[url], VersionInfo: shown}); err != nil {
			return err
		}
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		w.take(r)
		ack := &discoveryv3.DiscoveryRequest{
			TypeUrl: r.GetTypeUrl(), ResourceNames: names[r.GetTypeUrl()], VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce(),
		}
		if err := stream.Send(ack); err != nil {
			return err
		}
	}
}

func (w *watcher) take(r *discoveryv3.DiscoveryResponse) {
	url := r.GetTypeUrl()
	v, err := strconv.ParseUint(r.GetVersionInfo(), 10, 64)
	if err != nil {
		w.faultf("version %q of %s is no number", r.GetVersionInfo(), url)
	}
	if v < w.newest[url] {
		w.faultf("%s went back from version %d to %d", url, w.newest[url], v)
	}
	w.newest[url] = max(w.newest[url], v)
	w.last.Store(max(w.last.Load(), v))
	if len(r.GetResources()) == 0 {
		w.faultf("version %d of %s has no resource", v, url)
	}
	var content []byte
	for _, resource := range r.GetResources() {
		content = append(content, resource.GetValue()...)
		if url != endpointURL {
			continue
		}
		var a endpointv3.ClusterLoadAssignment
		if err := resource.UnmarshalTo(&a); err != nil || len(a.GetEndpoints()) == 0 {
			w.faultf("version %d has an assignment without endpoints (%v)", v, err)
		}
	}
	if w.contents.differs(url, r.GetVersionInfo(), content) {
		w.faultf("version %d of %s has two contents", v, url)
	}
}
