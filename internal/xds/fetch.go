package xds

import (
	"context"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Fetch answers one request over gRPC, at once and in full.
func (s *Server) Fetch(ctx context.Context, m *discoveryv3.DiscoveryRequest, method Method) (*rpc.Frame, error) {
	address := rpc.PeerAddress(ctx)
	a, err := s.Poll(ctx, m, method, address, 0)
	if err == nil && a.Unchanged { // which gRPC has no way to say
		m.VersionInfo = ""
		a, err = s.Poll(ctx, m, method, address, 0)
	}
	if err != nil {
		return nil, err
	}
	pieces := mem.BufferSlice{mem.SliceBuffer(resource.ResponseHead(a.Version))}
	for _, r := range a.Resources {
		pieces = r.AppendSotW(pieces)
	}
	kind, _ := resource.ParseURL(a.TypeURL)
	var tail mem.Buffer
	if kind == resource.Other {
		tail = mem.SliceBuffer(resource.ResponseTail(a.TypeURL, s.options.Identifier, false))
	} else {
		tail = s.tails.of(false, a.Form, kind)
	}
	return &rpc.Frame{Pieces: append(pieces, tail, mem.SliceBuffer(resource.AppendNonce(nil, a.Version)))}, nil
}

// fetchMethod describes a method that answers one request.
func fetchMethod(s Streams, service, name string, m Method) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			request := &discoveryv3.DiscoveryRequest{}
			if err := decode(request); err != nil {
				return nil, err
			}
			handle := func(ctx context.Context, request any) (any, error) {
				return s.Fetch(ctx, request.(*discoveryv3.DiscoveryRequest), m) //nolint:forcetypeassert // decoded above
			}
			if intercept == nil {
				return handle(ctx, request)
			}
			return intercept(ctx, request, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + service + "/" + name}, handle)
		},
	}
}
