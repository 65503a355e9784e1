package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/server"
)

// parts is everything that runs.
type parts struct {
	ctx     context.Context //nolint:containedctx // of all that the program runs
	running sync.WaitGroup
	closers []func() error // in the order of their start
}

// wait returns when all has ended, after the context has.
func (p *parts) wait() error {
	p.running.Wait()
	errs := make([]error, 0, len(p.closers))
	for _, end := range slices.Backward(p.closers) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// object is a part of a configuration file.
type object = map[string]any

// instance is a server that runs.
type instance struct {
	server *server.Server
	cancel context.CancelFunc
	ended  chan error
}

// start runs a server with a configuration, until stop.
func (p *parts) start(file object) (*instance, error) {
	data, err := json.Marshal(file) // JSON is YAML
	if err != nil {
		return nil, err
	}
	cfg, _, err := config.Decode("console test", data)
	if err != nil {
		return nil, err
	}
	s, err := server.Open(p.ctx, cfg, server.Options{Version: "test"})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.ctx))
	i := &instance{server: s, cancel: cancel, ended: make(chan error, 1)}
	go func() { i.ended <- s.Run(ctx) }()
	return i, nil
}

func (i *instance) stop() error {
	i.cancel()
	return <-i.ended
}

// awaitPlan returns when a server has published a plan.
func (i *instance) awaitPlan() error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range 3000 {
		if i.server.Plan() != nil {
			return nil
		}
		<-look.C
	}
	return errors.New("no plan after 30 s")
}

// two are the services of the small servers.
func two() []object {
	var out []object
	for i, name := range []string{"orders", "stock"} {
		var localities []object
		for k, l := range []string{"us-east/a", "eu-west/a"} {
			localities = append(localities, object{"locality": l, "max_rate": 100, "endpoints": []string{fmt.Sprintf("192.0.2.%d:%d", k+1, 9000+i)}})
		}
		out = append(out, object{"name": name, "mode": "full", "localities": localities})
	}
	return out
}

// clients starts a client of both services in each of their zones, which together with
// those of the other replicas of a group send what one zone may not take, and two can.
func (p *parts) clients(xds string, replicas float64) error {
	conn, err := p.dial(xds)
	if err != nil {
		return err
	}
	for _, from := range []string{"us-east/a", "eu-west/a"} {
		rate := demandOf(45 / replicas)
		if from == "us-east/a" {
			rate = demandOf(92 / replicas)
		}
		err := p.startAgent(fleet.AgentOptions{
			Conn: conn, ID: "client-" + from, Cluster: "shop", Locality: isobar.MustLocality(from), Kind: fleet.KindEnvoy,
			Services: []string{"orders", "stock"}, Demand: rate,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// kept is a server that wants a token for everything, serves beneath a path, and keeps its
// state in a directory.
type kept struct {
	Kept  string `json:"kept"`
	Token string `json:"token"`
}

type keeper struct {
	kept

	parts *parts
	file  object
	now   *instance
}

func (p *parts) startKept(dir string) (*keeper, error) {
	k := &keeper{parts: p, kept: kept{Token: rand.Text()}}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(k.Token), 0o600); err != nil {
		return nil, err
	}
	ports, err := freePorts(p.ctx, 2)
	if err != nil {
		return nil, err
	}
	k.file = object{
		"xds": object{"listen": ports[0]}, "state_dir": filepath.Join(dir, "kept"), "stop_spread": "0s", "tick": "1s", "report_interval": "1s",
		"admin":    object{"listen": ports[1], "writable": true, "token_file": token, "token_for": "all", "base_path": "/ops/isobar"},
		"services": two(),
	}
	if k.now, err = p.start(k.file); err != nil {
		return nil, err
	}
	p.closers = append(p.closers, func() error { return k.now.stop() })
	k.Kept = "http://" + ports[1] + "/ops/isobar/ui/"
	return k, errors.Join(k.now.awaitPlan(), p.clients(ports[0], 1))
}

// restart stops the server and starts it again on the same state.
func (k *keeper) restart() error {
	if err := k.now.stop(); err != nil {
		return err
	}
	next, err := k.parts.start(k.file)
	if err != nil {
		return err
	}
	k.now = next
	return k.now.awaitPlan()
}

// secured is a server that wants certificates.
type secured struct {
	Secured  string `json:"secured"`
	Operator files  `json:"operator"` // may write
	Client   files  `json:"client"`   // may read
}

func (p *parts) startSecured(dir string) (secured, error) {
	ca, err := newAuthority(dir)
	if err != nil {
		return secured{}, err
	}
	serves, err := ca.issue("localhost")
	if err != nil {
		return secured{}, err
	}
	out := secured{}
	if out.Operator, err = ca.issue("ann.ops.test"); err != nil {
		return secured{}, err
	}
	if out.Client, err = ca.issue("web.prod.test"); err != nil {
		return secured{}, err
	}
	ports, err := freePorts(p.ctx, 2)
	if err != nil {
		return secured{}, err
	}
	tls := object{"cert": serves.Cert, "key": serves.Key, "client_ca": ca.file}
	s, err := p.start(object{
		"xds": object{"listen": ports[0], "tls": tls, "identities": []object{
			{"match": "*.ops.test", "roles": []string{"client", "admin"}}, {"match": "*.prod.test", "roles": []string{"client"}},
		}},
		"admin":     object{"listen": ports[1], "writable": true, "tls": tls},
		"state_dir": filepath.Join(dir, "secured"), "stop_spread": "0s", "tick": "1s", "report_interval": "1s", "services": two(),
	})
	if err != nil {
		return secured{}, err
	}
	p.closers = append(p.closers, s.stop)
	_, port, err := net.SplitHostPort(ports[1])
	out.Secured = "https://localhost:" + port + "/ui/"
	return out, errors.Join(err, s.awaitPlan())
}

// replicaGroup is a group of three replicas in this process.
type replicaGroup struct {
	addresses []string
	replicas  []*instance
}

func (p *parts) startGroup(dir string) (*replicaGroup, error) {
	const count = 3
	ports, err := freePorts(p.ctx, 3*count)
	if err != nil {
		return nil, err
	}
	var peers []object
	for i := range count {
		peers = append(peers, object{"name": fmt.Sprintf("isobar-%d", i), "address": ports[3*i+2]})
	}
	g := &replicaGroup{}
	for i := range count {
		r, err := p.start(object{
			"xds": object{"listen": ports[3*i]}, "admin": object{"listen": ports[3*i+1], "writable": true},
			"state_dir": filepath.Join(dir, fmt.Sprintf("replica-%d", i)), "stop_spread": "0s", "tick": "1s", "report_interval": "1s",
			"replicas": object{
				"group": "console", "name": fmt.Sprintf("isobar-%d", i), "listen": ports[3*i+2], "peers": peers,
				"election": object{"file": filepath.Join(dir, "election")},
			},
			"services": two(),
		})
		if err != nil {
			return nil, err
		}
		g.replicas = append(g.replicas, r)
		g.addresses = append(g.addresses, "http://"+ports[3*i+1]+"/ui/")
		p.closers = append(p.closers, func() error {
			if g.replicas[i] == nil {
				return nil
			}
			return g.replicas[i].stop()
		})
	}
	for i, r := range g.replicas {
		if err := errors.Join(r.awaitPlan(), p.clients(ports[3*i], count)); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// lose stops the last replica.
func (g *replicaGroup) lose() error {
	last := len(g.replicas) - 1
	if g.replicas[last] == nil {
		return nil
	}
	err := g.replicas[last].stop()
	g.replicas[last] = nil
	return err
}

// freePorts returns addresses of the loopback interface that were free a moment ago.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var lc net.ListenConfig
	out := make([]string, n)
	held := make([]net.Listener, n)
	for i := range n {
		l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		held[i], out[i] = l, l.Addr().String()
	}
	errs := make([]error, n)
	for i, l := range held {
		errs[i] = l.Close()
	}
	return out, errors.Join(errs...)
}
