package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// more are services beside that of the demo: requests/s that one zone's clients send,
// and what a zone can serve.
var more = []struct {
	name             string
	demand, capacity float64
}{
	{"cart", 120, 200}, {"catalog", 310, 600}, {"inventory", 45, 150}, {"notifications", 12, 100}, {"payments", 66, 90}, {"pricing", 205, 300},
	{"profiles", 80, 250}, {"recommendations", 122, 180}, {"reviews", 33, 120}, {"search", 400, 560}, {"sessions", 510, 900}, {"shipping", 18, 60},
}

// zones are those of the demo, with the part of the demand that comes from each.
var zones = []struct {
	name string
	part float64
}{{"us-east/a", 1.5}, {"us-east/b", 0.9}, {"eu-west/a", 0.8}, {"eu-west/b", 0.6}}

// addServices writes the services over the admin API, and starts a client of all of them
// in each zone.
func (p *parts) addServices(admin string, conn grpc.ClientConnInterface) error {
	names := make([]string, 0, len(more))
	for i, m := range more {
		names = append(names, m.name)
		var localities []map[string]any
		for k, z := range zones {
			var endpoints []string
			for e := range 3 {
				endpoints = append(endpoints, fmt.Sprintf("192.0.2.%d:%d", 10*k+e+1, 8000+i))
			}
			localities = append(localities, map[string]any{"locality": z.name, "max_rate": m.capacity, "concurrency": 20, "endpoints": endpoints})
		}
		if err := put(p.ctx, admin, m.name, map[string]any{"mode": "full", "localities": localities}); err != nil {
			return err
		}
	}
	rates := map[string]float64{}
	for _, m := range more {
		rates[m.name] = m.demand
	}
	for _, z := range zones {
		demand := func(service string, now time.Time) float64 { return z.part * demandOf(rates[service])(service, now) }
		err := p.startAgent(fleet.AgentOptions{
			Conn: conn, ID: "web-" + z.name, Cluster: "web", Locality: isobar.MustLocality(z.name), Kind: fleet.KindEnvoy, Services: names, Demand: demand,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func put(ctx context.Context, admin, name string, service map[string]any) error {
	body, err := json.Marshal(service)
	if err != nil {
		return err
	}
	address := "http://" + admin + "/v1/services/" + url.PathEscape(name)
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("PUT %s: %s", name, answer.Status)
	}
	return nil
}

func (p *parts) startAgent(o fleet.AgentOptions) error {
	agent, err := fleet.NewAgent(o)
	if err != nil {
		return err
	}
	p.running.Go(func() { agent.Run(p.ctx) })
	return nil
}

// misbehave starts clients that report nothing and that ignore their weights, and a
// checker that reaches only its own zone.
func (p *parts) misbehave(conn grpc.ClientConnInterface, topology *isobar.Topology) error {
	far := isobar.MustLocality("us-east/a")
	for _, o := range []fleet.AgentOptions{
		{ID: "silent-1", Cluster: "batch", Locality: isobar.MustLocality("us-east/a"), Services: []string{"checkout"}, Silent: true},
		{
			ID: "stubborn-1", Cluster: "legacy", Locality: isobar.MustLocality("eu-west/c"), Services: []string{"checkout"},
			Split: func(*endpointv3.ClusterLoadAssignment) map[isobar.Locality]float64 {
				return map[isobar.Locality]float64{far: 1}
			},
		},
	} {
		o.Conn, o.Kind, o.Demand = conn, fleet.KindEnvoy, ten
		if err := p.startAgent(o); err != nil {
			return err
		}
	}
	return p.startChecker(conn, "checker-cut-off", isobar.MustLocality("us-east/b"), blocked(topology))
}

func ten(string, time.Time) float64 { return 10 }

// inject starts a client and a checker with names that hold markup; the client refuses
// what it is sent, with markup.
func (p *parts) inject(conn grpc.ClientConnInterface) error {
	err := p.startAgent(fleet.AgentOptions{
		Conn: conn, ID: markup, Cluster: markup, Locality: isobar.Locality{Region: markup, Zone: "a"}, Services: []string{"checkout", markup},
		Kind: fleet.KindEnvoy, Demand: ten, Accept: func(*endpointv3.ClusterLoadAssignment) error { return errors.New(markup) },
	})
	return errors.Join(err, p.startChecker(conn, markup, isobar.MustLocality("eu-west/c"), nil))
}

// surge starts a client that triples the demand of shipping.
func (p *parts) surge(conn grpc.ClientConnInterface) error {
	return p.startAgent(fleet.AgentOptions{
		Conn: conn, ID: "surge-1", Cluster: "web", Locality: isobar.MustLocality("us-east/b"), Kind: fleet.KindEnvoy, Services: []string{"shipping"},
		Demand: func(string, time.Time) float64 { return 40 },
	})
}

// dialer opens the connections of probes.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// errBlocked is how probes fail on a path with a problem.
var errBlocked = errors.New("no route to another zone")

// blocked is the dialer of a checker that reaches the endpoints of us-east/b only. Which
// checkers probe an endpoint depends on its port, so that a smaller fault may not be seen.
func blocked(topology *isobar.Topology) dialer {
	unreached := map[string]bool{}
	for i := range topology.Services {
		for _, l := range topology.Services[i].Localities {
			for _, e := range l.Endpoints {
				unreached[e.Address] = l.Locality != isobar.MustLocality("us-east/b")
			}
		}
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if unreached[address] {
			return nil, errBlocked
		}
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
}

func (p *parts) startChecker(conn grpc.ClientConnInterface, id string, from isobar.Locality, dial dialer) error {
	c, err := checker.New(checker.Options{Conn: conn, ID: id, Cluster: "checker", Locality: from, Dial: dial})
	if err != nil {
		return err
	}
	p.running.Go(func() { c.Run(p.ctx) })
	return nil
}
