package servers

import (
	"fmt"
	"net"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// floor is the least that a server on grpc-go can do: of a stream's first
// request it reads the zone, everything after it is dropped unread; a change
// is encoded once a zone and written to all streams in turn by one goroutine.
// It follows no subscriptions and waits for nobody, so it is no xDS server.
type floor struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	grpc      *grpc.Server
	endpoints int // of a cluster in a locality
	current   [fleet.Clusters][fleet.Zones]*resource.Encoded

	mu      sync.Mutex
	streams map[grpc.ServerStream]int // to the zone
	changes int
}

func newFloor(endpoints int) (*floor, error) {
	s := &floor{
		grpc: grpc.NewServer(transport(grpc.ForceServerCodecV2(passThrough{}))...), endpoints: endpoints, streams: map[grpc.ServerStream]int{},
	}
	for c := range s.current {
		if err := s.encode(c); err != nil {
			return nil, err
		}
	}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	return s, nil
}

func (s *floor) Serve(l net.Listener) error { return s.grpc.Serve(l) }

func (s *floor) Counted() int64 { return 0 }

func (s *floor) encode(cluster int) error {
	for z, a := range fleet.AssignmentsOf(s.endpoints, cluster, s.changes) {
		e, err := fleet.Encode(a)
		if err != nil {
			return err
		}
		s.current[cluster][z] = e
	}
	return nil
}

// StreamAggregatedResources answers the first request and drops the others.
func (s *floor) StreamAggregatedResources(g discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	var first discoveryv3.DiscoveryRequest
	if err := g.RecvMsg(&first); err != nil {
		return err
	}
	var zone int
	if _, err := fmt.Sscanf(first.GetNode().GetLocality().GetZone(), "zone-%d", &zone); err != nil {
		return err
	}
	if err := s.join(g, zone, first.GetResourceNames()); err != nil {
		return err
	}
	defer s.leave(g)
	for {
		if err := g.RecvMsg(dropped{}); err != nil {
			return nil // the client has gone
		}
	}
}

func (s *floor) join(g grpc.ServerStream, zone int, names []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.frame(0)
	for _, n := range names {
		var c int
		if _, err := fmt.Sscanf(strings.TrimPrefix(n, "cluster-"), "%d", &c); err != nil {
			return err
		}
		all = append(all, mem.SliceBuffer(s.current[c][zone].SotW))
	}
	s.streams[g] = zone
	return g.SendMsg(all)
}

func (s *floor) leave(g grpc.ServerStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, g)
}

func (s *floor) Change(cluster int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	if err := s.encode(cluster); err != nil {
		return err
	}
	var frames [fleet.Zones]mem.BufferSlice
	for z := range frames {
		whole := append(s.frame(s.changes), mem.SliceBuffer(s.current[cluster][z].SotW))
		frames[z] = mem.BufferSlice{mem.SliceBuffer(whole.Materialize())}
	}
	for g, zone := range s.streams {
		if err := g.SendMsg(frames[zone]); err != nil {
			return err
		}
	}
	return nil
}

// frame encodes what stands around the resources of a response.
func (s *floor) frame(version int) mem.BufferSlice {
	v := fmt.Sprint(version)
	b := resource.ResponseHead(v)
	b = append(b, resource.ResponseTail(resource.EndpointsURL, "isobar", false)...)
	return mem.BufferSlice{mem.SliceBuffer(resource.AppendNonce(b, v))}
}

// dropped is a message that nobody looks at.
type dropped struct{}

// passThrough sends bytes as they are and drops what nobody looks at.
type passThrough struct{}

func (passThrough) Name() string { return proto.Name }

func (passThrough) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(mem.BufferSlice); ok {
		return b, nil
	}
	return encoding.GetCodecV2(proto.Name).Marshal(v)
}

func (passThrough) Unmarshal(data mem.BufferSlice, v any) error {
	if _, ok := v.(dropped); ok {
		return nil
	}
	return encoding.GetCodecV2(proto.Name).Unmarshal(data, v)
}
