package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/fleet/envoyloop"
)

// settings are the same for all fleets.
type settings struct {
	isobar, envoy string // paths of the binaries
	proxies       int    // Envoys in each zone
	seed          uint64
	warm, length  time.Duration // before the event, and from it to the end
	tick          time.Duration // of Isobar, and of load reports
	eject         bool          // outliers, in clusters that Isobar does not make
	log           io.Writer
}

// fleet is the backends and Envoys of one policy. Other policies have their own.
type fleet struct {
	options  *settings
	scenario *scenario
	policy   *policy
	dir      string

	backends [][]*envoyloop.Backend // by zone
	zoneOf   map[string]int         // by address of a backend
	server   *envoyloop.Server      // nil without Isobar
	proxies  []*envoyloop.Proxy     // in order of zones
}

// startFleet starts everything; network is the second byte of the addresses of its backends.
func startFleet(ctx context.Context, o *settings, s *scenario, p *policy, dir string, network int) (*fleet, error) {
	f := &fleet{options: o, scenario: s, policy: p, dir: dir, zoneOf: map[string]int{}}
	err := f.start(ctx, network)
	if err != nil {
		f.stop()
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context, network int) (err error) {
	if err := f.startBackends(network); err != nil {
		return err
	}
	if f.policy.cluster == nil {
		f.server, err = envoyloop.StartServer(ctx, &envoyloop.ServerOptions{
			Path: f.options.isobar, Dir: f.dir, Log: f.options.log, Tick: f.options.tick, ReportInterval: f.options.tick, Services: f.configuration(),
		})
		if err != nil {
			return err
		}
	}
	f.proxies = make([]*envoyloop.Proxy, len(zones)*f.options.proxies)
	errs := make([]error, len(f.proxies))
	var starting sync.WaitGroup
	for i := range f.proxies {
		starting.Go(func() { f.proxies[i], errs[i] = f.startProxy(ctx, i/f.options.proxies, i%f.options.proxies) })
	}
	starting.Wait()
	return errors.Join(errs...)
}

// startBackends starts the backends. Each has an address of its own, on which
// nothing else opens ports: what refuses connections comes back on the same port.
// The network's latency is spent in the backends, before a request queues.
func (f *fleet) startBackends(network int) error {
	for z := range zones {
		f.backends = append(f.backends, nil)
		for i := range backendsPerZone {
			b, err := envoyloop.StartBackend(envoyloop.BackendOptions{
				Address: fmt.Sprintf("127.%d.%d.%d:0", network, z+1, i+1), Concurrency: concurrency, ServiceTime: serviceTime,
				Seed: f.options.seed + uint64(10*z+i), ORCA: true, Body: bodyBytes,
				Delay: func(source string) time.Duration {
					from, err := strconv.Atoi(source)
					if err != nil || from < 0 || from >= len(zones) {
						return 0
					}
					return latency(from, z)
				},
			})
			if err != nil {
				return err
			}
			f.backends[z] = append(f.backends[z], b)
			f.zoneOf[b.Address()] = z
		}
	}
	return nil
}

func (f *fleet) startProxy(ctx context.Context, zone, n int) (*envoyloop.Proxy, error) {
	id := fmt.Sprintf("%s-%s-%d", zones[zone].Region, zones[zone].Zone, n)
	text, err := f.bootstrap(ctx, zone, id)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(f.dir, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	p, err := envoyloop.StartProxy(ctx, envoy.Config{Path: f.options.envoy, Bootstrap: []byte(text), Dir: dir, Log: f.options.log}, zone)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	return p, p.Serves(ctx, service)
}

func (f *fleet) bootstrap(ctx context.Context, zone int, id string) (string, error) {
	if f.policy.cluster != nil {
		own, err := f.policy.cluster(f, zone)
		return bootstrap(zone, id, own), err
	}
	args := []string{"--cluster", "client", "--locality", zones[zone].String(), "--node-id", id}
	if f.policy.lbPolicy != "" {
		args = append(args, "--service", service)
	}
	text, err := f.server.Bootstrap(ctx, args...)
	if err == nil && f.policy.lbPolicy != "" {
		text, err = withLBPolicy(text, f.policy.lbPolicy)
	}
	if err != nil {
		return "", err
	}
	return envoyloop.WithListener(text, route)
}

// run sends the scenario's requests and returns them.
func (f *fleet) run(ctx context.Context) ([]envoyloop.Request, error) {
	o := f.options
	changed := make(chan error, 1)
	event := time.AfterFunc(o.warm, func() { changed <- f.change() })
	defer event.Stop()
	targets := make([]envoyloop.Target, len(f.proxies))
	for i, p := range f.proxies {
		targets[i] = p.Target
	}
	traffic := envoyloop.Traffic{
		Seed: o.seed, Host: service, Timeout: 5 * time.Second,
		Rate: func(source int, at time.Duration) float64 {
			return f.scenario.demand(source, at-o.warm) / float64(o.proxies)
		},
	}
	requests := traffic.Run(ctx, targets, o.warm+o.length)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return requests, <-changed
}

// change is the event in the backends of the first zone.
func (f *fleet) change() error {
	var errs []error
	for _, b := range f.backends[0] {
		if f.scenario.Slow > 0 {
			b.Slow(f.scenario.Slow)
		}
		if f.scenario.Lost {
			errs = append(errs, b.Set(envoyloop.Refuse))
		}
	}
	return errors.Join(errs...)
}

func (f *fleet) stop() {
	for _, p := range f.proxies {
		if p != nil {
			p.Kill()
		}
	}
	for _, zone := range f.backends {
		for _, b := range zone {
			_ = b.Close()
		}
	}
	if f.server != nil {
		f.server.Stop()
	}
}
