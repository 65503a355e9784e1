package server

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/reload"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/csds"
)

// services is what the gRPC servers serve. It implements [listen.Services].
type services struct {
	settings *reload.Settings
	xds      *xds.Server
	lrs      *lrs.Server
	hds      *hds.Server
	csds     *csds.Server
	health   *grpchealth.Server // gRPC's own service, not that of endpoints
	loop     *control.Loop
}

// Register implements [listen.Services]. Health and reflection show all services, so
// they come last.
func (s *services) Register(g *grpc.Server, only2017 bool) {
	xds.Register(g, s.xds, only2017)
	xds.RegisterEDS(g, s.xds, only2017, s.lrs.Stream2017())
	s.lrs.Register(g)
	s.hds.Register(g)
	s.csds.Register(g)
	channelz.RegisterChannelzServiceToServer(g)
	healthpb.RegisterHealthServer(g, s.health)
	reflection.Register(g)
	names := make([]string, 0, len(g.GetServiceInfo()))
	for name := range g.GetServiceInfo() {
		names = append(names, name)
	}
	s.setHealth(names, healthpb.HealthCheckResponse_NOT_SERVING)
}

// Left implements [listen.Services].
func (s *services) Left() <-chan struct{} { return s.loop.Left() }

// Spread implements [listen.Services].
func (s *services) Spread() time.Duration { return s.settings.Current().StopSpread }

// Stop implements [listen.Services].
func (s *services) Stop() {
	s.xds.Stop()
	s.lrs.Stop()
	s.hds.Stop()
	s.csds.Stop()
}

// lastPlanPatience is how long to wait until clients have accepted that
// they are to drop nothing.
const lastPlanPatience = time.Second

// WaitAcknowledged implements [listen.Services]: it waits until clients have accepted a last plan without drops, if
// there is one, for a bounded time.
func (s *services) WaitAcknowledged() {
	if !s.loop.Undropped() {
		return
	}
	give := time.NewTimer(lastPlanPatience)
	defer give.Stop()
	look := time.NewTicker(lastPlanPatience / 50)
	defer look.Stop()
	for {
		behind := !s.xds.Dispatched()
		for _, c := range s.xds.Clients() {
			behind = behind || !c.InSync
		}
		if !behind {
			return
		}
		select {
		case <-look.C:
		case <-give.C:
			return
		}
	}
}

func (s *services) setHealth(names []string, to healthpb.HealthCheckResponse_ServingStatus) {
	s.health.SetServingStatus("", to)
	for _, name := range names {
		s.health.SetServingStatus(name, to)
	}
}

// serveHealth sets gRPC's health service to SERVING, for the server and each of
// the named services, from the first plan until the server begins to stop.
func (s *services) serveHealth(ctx context.Context, names []string) {
	select {
	case <-s.xds.Ready():
		s.setHealth(names, healthpb.HealthCheckResponse_SERVING)
		<-ctx.Done()
	case <-ctx.Done():
	}
	s.health.Shutdown()
}

// polls serves clients and checkers that poll over HTTP.
func (s *services) polls() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", xds.Handler(s.xds, false))
	for _, path := range []string{rpc.CheckerPath, rpc.CheckerPathV2} {
		mux.Handle(path, s.hds.Handler())
	}
	return mux
}

// Reauthorize implements [reload.Services]: it checks the streams that are open by other
// rules than before. Where they take a role or a locality from a client, it is mostly
// because a key was lost, and a stream may stay open for weeks.
func (s *services) Reauthorize() {
	s.xds.Reauthorize()
	s.lrs.Reauthorize()
	s.hds.Reauthorize()
}

// Refresh implements [reload.Services].
func (s *services) Refresh() { s.lrs.Refresh() }

// checkers shows the loop what it needs of the health discovery service.
type checkers struct {
	*hds.Server
}

// Connected implements [control.Checkers].
func (c checkers) Connected(now time.Time) []health.Checker {
	connected := c.Checkers(now)
	out := make([]health.Checker, len(connected))
	for i := range connected {
		out[i] = connected[i].Checker
	}
	return out
}
