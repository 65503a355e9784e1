package envoyloop

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
)

// Options are the same for all scenarios of a run.
type Options struct {
	Isobar   string // path of the binary
	Envoy    string // path of the binary
	Proxies  int    // Envoys in each zone, of each system
	Seed     uint64
	Settings string // of the service that Isobar manages, beside those of the scenario: lines of YAML
	Alone    bool   // run Envoys without Isobar beside those with it, with as many backends of their own

	Tick           time.Duration // of the server
	ReportInterval time.Duration
	Warm           time.Duration // before the fault
	Fault          time.Duration
	After          time.Duration // after it
	Log            io.Writer     // of the processes; nil discards it
}

// fleet is the backends and proxies of one system.
type fleet struct {
	backends [][]*Backend // by zone
	proxies  []*Proxy
	zoneOf   map[string]int // by address of a backend
}

// Run runs a scenario and measures it.
func Run(ctx context.Context, o *Options, s *Scenario) (_ *Result, err error) {
	dir, err := os.MkdirTemp("", "isobar-envoyloop-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &runner{options: o, scenario: s, dir: dir}
	defer r.stop()
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	return r.measure(ctx)
}

// runner is one run of one scenario.
type runner struct {
	options  *Options
	scenario *Scenario
	dir      string
	server   *Server
	isobar   *fleet // proxies that the server steers
	alone    *fleet // nil: without
}

func (r *runner) start(ctx context.Context) (err error) {
	if r.isobar, err = r.startBackends(10); err != nil {
		return err
	}
	r.server, err = StartServer(ctx, &ServerOptions{
		Path: r.options.Isobar, Dir: r.dir, Log: r.options.Log, Tick: r.options.Tick, ReportInterval: r.options.ReportInterval,
		Services: r.scenario.services(r.isobar.addresses(), r.options.Settings),
	})
	if err != nil {
		return err
	}
	if r.options.Alone {
		if r.alone, err = r.startBackends(20); err != nil {
			return err
		}
	}
	return r.startProxies(ctx)
}

// startBackends starts the backends of a system. Each has an address of its own,
// on which nothing else opens ports: what refuses connections comes back on the same port.
func (r *runner) startBackends(network int) (*fleet, error) {
	f := &fleet{zoneOf: map[string]int{}}
	for z := range Zones {
		f.backends = append(f.backends, nil)
		for i := range backendsPerZone {
			b, err := StartBackend(BackendOptions{
				Address: fmt.Sprintf("127.%d.%d.%d:0", network, z+1, i+1), Concurrency: concurrency, ServiceTime: serviceTime, Limit: r.scenario.Shed,
				Seed: r.options.Seed + uint64(10*z+i),
				Delay: func(source string) time.Duration {
					from, err := strconv.Atoi(source)
					if err != nil || from < 0 || from >= len(Zones) {
						return 0
					}
					return latency(from, z)
				},
			})
			if err != nil {
				f.stop()
				return nil, err
			}
			f.backends[z] = append(f.backends[z], b)
			f.zoneOf[b.Address()] = z
		}
	}
	return f, nil
}

// startProxies starts all Envoys at once.
func (r *runner) startProxies(ctx context.Context) error {
	route := "cluster: " + service + ", timeout: " + routeTimeout.String()
	var starting sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	start := func(f *fleet, source int, id, bootstrap string) {
		dir := filepath.Join(r.dir, id)
		err := os.Mkdir(dir, 0o700)
		var p *Proxy
		if err == nil {
			p, err = StartProxy(ctx, envoy.Config{Path: r.options.Envoy, Bootstrap: []byte(bootstrap), Dir: dir, Log: r.options.Log}, source)
		}
		if err == nil {
			err = p.Serves(ctx, service)
		}
		mu.Lock()
		defer mu.Unlock()
		if p != nil {
			f.proxies = append(f.proxies, p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("proxy %s: %w", id, err))
		}
	}
	for z, zone := range Zones {
		for i := range r.options.Proxies {
			id := fmt.Sprintf("envoy-%s-%d", zone.Zone, i)
			starting.Go(func() {
				text, err := r.server.Bootstrap(ctx, "--cluster", "client", "--locality", zone.String(), "--node-id", id)
				if err == nil {
					text, err = WithListener(text, route)
				}
				if err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
					return
				}
				start(r.isobar, z, id, text)
			})
			if r.alone != nil {
				starting.Go(func() { start(r.alone, z, "alone-"+id, static(service, route, r.alone.tiers(z))) })
			}
		}
	}
	starting.Wait()
	return errors.Join(errs...)
}

// stop ends everything that was started.
func (r *runner) stop() {
	for _, f := range []*fleet{r.isobar, r.alone} {
		if f != nil {
			f.stop()
		}
	}
	if r.server != nil {
		r.server.Stop()
	}
}

func (f *fleet) addresses() [][]string {
	out := make([][]string, len(f.backends))
	for z, list := range f.backends {
		for _, b := range list {
			out[z] = append(out[z], b.Address())
		}
	}
	return out
}

// tiers lists the addresses of each priority for a source.
func (f *fleet) tiers(source int) (out [][]string) {
	all := f.addresses()
	for _, zones := range priorities(source) {
		var tier []string
		for _, z := range zones {
			tier = append(tier, all[z]...)
		}
		out = append(out, tier)
	}
	return out
}

// set changes how the backends of the first zone treat requests.
func (f *fleet) set(fault Fault, only int) error {
	list := f.backends[0]
	if only > 0 {
		list = list[:min(only, len(list))]
	}
	var errs []error
	for _, b := range list {
		errs = append(errs, b.Set(fault))
	}
	return errors.Join(errs...)
}

func (f *fleet) stop() {
	for _, p := range f.proxies {
		p.Kill()
	}
	for _, zone := range f.backends {
		for _, b := range zone {
			_ = b.Close()
		}
	}
}

// send sends the scenario's traffic through the proxies of a system.
func (r *runner) send(ctx context.Context, f *fleet) []Request {
	targets := make([]Target, 0, len(f.proxies))
	count := map[int]int{}
	for z := range Zones { // in order of zones: the same seeds for both systems
		for _, p := range f.proxies {
			if p.Source == z {
				targets = append(targets, p.Target)
				count[z]++
			}
		}
	}
	o := r.options
	t := Traffic{
		Seed: o.Seed, Host: service, Timeout: 5 * time.Second,
		Rate: func(source int, at time.Duration) float64 {
			if at >= o.Warm && at < o.Warm+o.Fault {
				return r.scenario.load(source) / float64(count[source])
			}
			return normal * capacity / float64(count[source])
		},
	}
	return t.Run(ctx, targets, o.Warm+o.Fault+o.After)
}
