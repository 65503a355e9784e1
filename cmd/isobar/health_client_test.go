package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds/csds"
)

// sight is what the xDS client sees of a service at a time.
type sight struct {
	At      time.Time         `json:"at"`
	Service string            `json:"service"`
	Health  map[string]string `json:"health"` // by address
}

// xdsClient is a program: a real grpc-go xDS client, set up by the environment
// as in production, that writes down what it holds of the endpoints of the
// services that its arguments name, each time that it changes. It ends with its
// standard input.
func xdsClient() {
	if err := watchEndpoints(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func watchEndpoints(services []string, in io.Reader, out io.Writer) error {
	for _, s := range services {
		conn, err := grpc.NewClient("xds:///"+s, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		conn.Connect()
	}
	view, err := csds.NewClientStatusDiscoveryServer()
	if err != nil {
		return err
	}
	defer view.Close()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(ended)
	}()
	last, lines := map[string]map[string]string{}, json.NewEncoder(out)
	often := time.NewTicker(10 * time.Millisecond)
	defer often.Stop()
	for {
		select {
		case <-ended:
			return nil
		case at := <-often.C:
			held, err := endpointHealth(view)
			if err != nil {
				return err
			}
			for service, health := range held {
				if maps.Equal(last[service], health) {
					continue
				}
				last[service] = health
				if err := lines.Encode(sight{At: at, Service: service, Health: health}); err != nil {
					return err
				}
			}
		}
	}
}

// endpointHealth asks the client for the endpoints that it holds. One that
// stands in several priorities is told once: its health is the same in all.
func endpointHealth(view *csds.ClientStatusDiscoveryServer) (map[string]map[string]string, error) {
	resp, err := view.FetchClientStatus(context.Background(), &statusv3.ClientStatusRequest{})
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]string{}
	for _, client := range resp.GetConfig() {
		for _, res := range client.GetGenericXdsConfigs() {
			var cla endpointv3.ClusterLoadAssignment
			if res.GetXdsConfig() == nil || !res.GetXdsConfig().MessageIs(&cla) {
				continue
			}
			if err := res.GetXdsConfig().UnmarshalTo(&cla); err != nil {
				return nil, err
			}
			health := map[string]string{}
			for _, l := range cla.GetEndpoints() {
				for _, e := range l.GetLbEndpoints() {
					a := e.GetEndpoint().GetAddress().GetSocketAddress()
					health[fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue())] = e.GetHealthStatus().String()
				}
			}
			out[cla.GetClusterName()] = health
		}
	}
	return out, nil
}

// watcher follows an xDS client in a process of its own.
type watcher struct {
	mu      sync.Mutex
	health  map[string]map[string]string // by service and address
	flips   map[string]int               // by address: changes so far
	changed map[string]time.Time         // by address: when the last one was seen
}

func newWatcher(tb testing.TB, server string, services ...string) *watcher {
	tb.Helper()
	bootstrap, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri": server, "channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{"id": "watcher", "cluster": "watcher", "locality": map[string]string{"region": "us", "zone": "a"}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	w := &watcher{health: map[string]map[string]string{}, flips: map[string]int{}, changed: map[string]time.Time{}}
	c := &child{t: tb, name: "xds-client", env: []string{"GRPC_XDS_BOOTSTRAP_CONFIG=" + string(bootstrap)}, args: services}
	out := c.start()
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var s sight
			if err := json.Unmarshal(lines.Bytes(), &s); err == nil {
				w.see(&s)
			}
		}
	}()
	return w
}

func (w *watcher) see(s *sight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.health[s.Service]
	for address, h := range s.Health {
		if was[address] != h {
			w.flips[address]++
			w.changed[address] = s.At
		}
	}
	for address := range was {
		if _, still := s.Health[address]; !still {
			w.flips[address]++
			w.changed[address] = s.At
		}
	}
	w.health[s.Service] = s.Health
}

// of returns the health of an endpoint as the client holds it, and since when;
// empty if it does not hold the endpoint.
func (w *watcher) of(service, address string) (health string, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.health[service][address], w.changed[address]
}

// all returns the numbers of changes of all endpoints, so far.
func (w *watcher) all() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.flips)
}
