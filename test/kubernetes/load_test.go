package kubernetes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/xds"

	"github.com/isobar-xds/isobar/internal/identity"
)

// programs are the gRPC servers that Pods run, by address. A nil one runs none.
type programs struct {
	t *testing.T

	mu      sync.Mutex
	running map[string]*grpc.Server // nil once the test ends: Pods start nothing more
}

func newPrograms(t *testing.T) *programs {
	t.Helper()
	p := &programs{t: t, running: map[string]*grpc.Server{}}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.running {
			s.Stop()
		}
		p.running = nil
	})
	return p
}

func (p *programs) start(address string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(address, "8080"))
	if err != nil {
		p.t.Error(err)
		return
	}
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	p.running[address] = s
	go func() { _ = s.Serve(l) }() // ends with the server
}

func (p *programs) take(address string) *grpc.Server {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.running[address]
	delete(p.running, address)
	return s
}

// end has a program finish its requests, as one that obeys SIGTERM does.
func (p *programs) end(address string) {
	if s := p.take(address); s != nil {
		s.GracefulStop()
	}
}

func (p *programs) kill(address string) {
	if s := p.take(address); s != nil {
		s.Stop()
	}
}

// callers are gRPC clients with a load.
type callers struct {
	t    *testing.T
	sent atomic.Int64
	stop func()

	mu     sync.Mutex
	failed map[string][]string // errors by the address that was reached
	took   []time.Duration     // of the requests that succeeded
}

// callersOf starts a client in each of the zones, which sends requests at a rate (1/s).
// tls, if not nil, are the files of the connections to the server.
func callersOf(t *testing.T, server, service string, zones []string, rate int, tls *identity.Files) *callers {
	t.Helper()
	c := &callers{t: t, failed: map[string][]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for i, zone := range zones {
		resolver, err := xds.NewXDSResolverWithConfigForTesting(bootstrapOf(t, server, fmt.Sprintf("caller-%d", i), zone, tls))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient("xds:///"+service, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		client := healthpb.NewHealthClient(conn)
		eventually(t, time.Minute, "an answer to "+zone, func() bool {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
			return err == nil
		})
		work.Go(func() { c.run(ctx, client, rate) })
	}
	c.stop = sync.OnceFunc(func() {
		cancel()
		work.Wait()
	})
	t.Cleanup(c.stop)
	return c
}

func (c *callers) run(ctx context.Context, client healthpb.HealthClient, rate int) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var work sync.WaitGroup
	defer work.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		work.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			var at peer.Peer
			c.sent.Add(1)
			began := time.Now()
			_, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&at))
			took := time.Since(began)
			c.mu.Lock()
			defer c.mu.Unlock()
			if err == nil {
				c.took = append(c.took, took)
				return
			}
			host := ""
			if at.Addr != nil {
				host, _, _ = net.SplitHostPort(at.Addr.String())
			}
			c.failed[host] = append(c.failed[host], err.Error())
		})
	}
}

// failures returns how many requests failed, and one error by address.
func (c *callers) failures() (count int, first map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = map[string]string{}
	for address, errs := range c.failed {
		count += len(errs)
		first[address] = errs[0]
	}
	return count, first
}

// times says how long requests took.
func (c *callers) times() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.took) == 0 {
		return "nothing"
	}
	sorted := slices.Sorted(slices.Values(c.took))
	return fmt.Sprintf("%s (median; 99%%: %s)", sorted[len(sorted)/2].Round(100*time.Microsecond), sorted[len(sorted)*99/100].Round(time.Millisecond))
}

func bootstrapOf(t *testing.T, server, id, zone string, tls *identity.Files) []byte {
	t.Helper()
	credentials := map[string]any{"type": "insecure"}
	if tls != nil {
		credentials = map[string]any{"type": "tls", "config": map[string]string{
			"ca_certificate_file": tls.ClientCA, "certificate_file": tls.Cert, "private_key_file": tls.Key,
		}}
	}
	data, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{"server_uri": server, "channel_creds": []any{credentials}, "server_features": []string{"xds_v3"}}},
		"node":        map[string]any{"id": id, "cluster": "web", "locality": map[string]string{"region": "us", "zone": zone}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}
