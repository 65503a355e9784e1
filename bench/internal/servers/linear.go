package servers

import (
	"context"
	"net"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// linear is go-control-plane's LinearCache, one per client zone behind a mux,
// with the order of types that aggregated streams ask for: of the ways to
// serve a zone's own weights with that library, the one that costs least.
type linear struct {
	grpc    *grpc.Server
	zones   [fleet.Zones]*cache.LinearCache
	changes int
}

func newLinear() (*linear, error) {
	s := &linear{grpc: grpc.NewServer(transport()...)}
	var initial [fleet.Zones]map[string]types.Resource
	for c := range fleet.Clusters {
		for z, a := range fleet.Assignments(c, 0) {
			m, err := resource.Assignment(a)
			if err != nil {
				return nil, err
			}
			if initial[z] == nil {
				initial[z] = map[string]types.Resource{}
			}
			initial[z][a.Service] = m
		}
	}
	mux := &cache.MuxCache{
		Classify: func(r *cache.Request) string { return r.GetNode().GetLocality().GetZone() },
		Caches:   map[string]cache.Cache{},
	}
	for z := range s.zones {
		s.zones[z] = cache.NewLinearCache(resource.EndpointsURL, cache.WithInitialResources(initial[z]))
		mux.Caches[fleet.Zone(z).Zone] = s.zones[z]
	}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc,
		serverv3.NewServer(context.Background(), mux, nil, sotw.WithOrderedADS()))
	return s, nil
}

func (s *linear) Serve(l net.Listener) error { return s.grpc.Serve(l) }

func (s *linear) Counted() int64 { return 0 }

func (s *linear) Change(cluster int) error {
	s.changes++
	for z, a := range fleet.Assignments(cluster, s.changes) {
		m, err := resource.Assignment(a)
		if err != nil {
			return err
		}
		if err := s.zones[z].UpdateResource(a.Service, m); err != nil {
			return err
		}
	}
	return nil
}
