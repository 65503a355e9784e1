package server

import (
	"context"

	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// registerOperational adds what operators and their tools ask: client status,
// channelz, health and reflection. The last two tell of all services, so they
// come last.
func (s *Server) registerOperational(g *grpc.Server) {
	s.csds.Register(g)
	channelz.RegisterChannelzServiceToServer(g)
	healthpb.RegisterHealthServer(g, s.health)
	reflection.Register(g)
	s.setHealth(g, healthpb.HealthCheckResponse_NOT_SERVING)
}

func (s *Server) setHealth(g *grpc.Server, to healthpb.HealthCheckResponse_ServingStatus) {
	s.health.SetServingStatus("", to)
	for name := range g.GetServiceInfo() {
		s.health.SetServingStatus(name, to)
	}
}

// tellHealth has gRPC's health service say SERVING, for the server and each of
// its services, from the first plan until the server begins to stop.
func (s *Server) tellHealth(ctx context.Context) {
	select {
	case <-s.xds.Ready():
		s.setHealth(s.parts[0].server, healthpb.HealthCheckResponse_SERVING)
		<-ctx.Done()
	case <-ctx.Done():
	}
	s.health.Shutdown()
}
