package hds_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
)

// scripted probes end as the table says, by address; else they pass.
type scripted struct {
	outcomes *sync.Map
	address  string
}

func (s scripted) Probe(ctx context.Context) (checker.Outcome, error) {
	o, ok := s.outcomes.Load(s.address)
	if !ok {
		return checker.Passed, nil
	}
	if o == checker.TimedOut {
		<-ctx.Done()
	}
	return o.(checker.Outcome), errors.New("as scripted")
}

func (scripted) Close() {}

// Isobar's own checker against Isobar's own server, with all that both know:
// TLS, gRPC and Redis, endpoints probed elsewhere, a failure, an outage, a
// service that goes.
func TestOwnCheckers(t *testing.T) {
	grpcCheck, redisCheck, httpCheck := tcpCheck(), tcpCheck(), tcpCheck()
	grpcCheck.Protocol, grpcCheck.TCP, grpcCheck.GRPC, grpcCheck.TLS = isobar.CheckGRPC, nil, &isobar.GRPCCheck{Service: "s"}, true
	redisCheck.Protocol, redisCheck.TCP, redisCheck.Redis = isobar.CheckRedis, nil, &isobar.RedisCheck{Key: "down"}
	httpCheck.Protocol, httpCheck.TCP, httpCheck.TLS = isobar.CheckHTTP, nil, true
	httpCheck.HTTP = &isobar.HTTPCheck{
		Path: "/healthz", Host: "web.example", Method: "HEAD", Expected: []isobar.StatusRange{{Start: 200, End: 300}},
		Headers: []isobar.Header{{Name: "X-Probe", Value: "1"}}, HTTP2: true,
	}
	elsewhere := service("web", 4, httpCheck)
	elsewhere.Localities[0].Endpoints[0].Check = &isobar.EndpointCheck{Address: "10.9.9.9", Port: 9000, Hostname: "one.example"}
	elsewhere.Localities[0].Endpoints[1].Check = &isobar.EndpointCheck{Disabled: true}
	top := topology(service("rpc", 1, grpcCheck), service("cache", 2, redisCheck), service("plain", 3), elsewhere)

	inBubble(t, hds.Options{Interval: every(2 * time.Second)}, func(h *harness) {
		var outcomes, probed sync.Map
		c, err := checker.New(checker.Options{
			Conn: h.conn, ID: "own-1", Locality: isobar.MustLocality("r/a"),
			NewProber: func(target checker.Target, _ *corev3.HealthCheck) (checker.Prober, error) {
				probed.Store(target.Cluster+" "+target.Address, target.Hostname)
				return scripted{&outcomes, target.Address}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(h.t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		synctest.Wait()
		list := h.srv.Checkers(time.Now())
		if len(list) != 1 || list[0].Protocols.String() != "http+tcp+grpc+redis" {
			t.Fatalf("checkers %+v", list)
		}
		said := map[health.Key]isobar.HealthStatus{}
		hear := func(d time.Duration) {
			for range d / time.Second {
				pass(time.Second)
				for _, r := range h.srv.Collect(time.Now()) {
					said[health.Key{Service: r.Service, Address: r.Address}] = r.Status
				}
			}
		}
		h.srv.Designate(top, all(top, "own-1"))
		hear(10 * time.Second)
		if len(said) != 11 {
			t.Errorf("it reports on %d endpoints, want all 11: %v", len(said), said)
		}
		for k, s := range said {
			if s != isobar.Healthy {
				t.Errorf("%v is %v", k, s)
			}
		}
		if name, ok := probed.Load("web 10.9.9.9:9000"); !ok || name != "one.example" {
			t.Errorf("the override of address and port is not obeyed")
		}
		outcomes.Store("10.0.3.1:80", checker.TimedOut)
		outcomes.Store("10.9.9.9:9000", checker.Broken)
		hear(10 * time.Second)
		if said[health.Key{Service: "plain", Address: "10.0.3.1:80"}] != isobar.Timeout || said[health.Key{Service: "web", Address: "10.0.4.1:80"}] != isobar.Unhealthy {
			t.Errorf("after two failures: %v", said)
		}
		// A service goes, and comes back.
		h.srv.Designate(topology(service("plain", 3)), all(topology(service("plain", 3)), "own-1"))
		hear(10 * time.Second)
		clear(said)
		hear(10 * time.Second)
		if len(said) != 3 {
			t.Errorf("reports on what went: %v", said)
		}
		h.srv.Designate(top, all(top, "own-1"))
		hear(20 * time.Second)
		if len(said) != 11 {
			t.Errorf("reports on %d endpoints after all came back", len(said))
		}
		if got := h.srv.Checkers(time.Now())[0]; got.Rejected != 0 || strings.Contains(got.ID, "#") {
			t.Errorf("checker %+v", got)
		}
		cancel()
		<-ended
		synctest.Wait()
		if len(h.ids()) != 0 {
			t.Error("the checker is still there")
		}
	})
}
