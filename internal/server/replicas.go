package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/operators"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/reload"
	"github.com/isobar-xds/isobar/internal/replica"
	lease "github.com/isobar-xds/isobar/internal/replica/engine/kubernetes"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// replicaPatience is how long a replica that stops waits until the engine knows that
// it leads no more.
const replicaPatience = 3 * time.Second

// replicas is what makes a server a replica of a group. It implements [control.Group].
type replicas struct {
	configured *config.Replicas
	balance    time.Duration // Options.BalanceCalm
	log        *slog.Logger
	services   *services
	all        *operators.Clients
	loop       *control.Loop        // set before it runs
	admin      func() *admin.Server // nil where there is no admin interface

	member        member
	relay         *relay.Relay
	warmed        uint64 // epoch of the leader that got the last windows; of the loop
	election      election
	operators     *operated
	plans         planCodec
	configuration groupConfiguration
	clients       groupClients
	counted       countedClients
	// certificates are what this replica shows to its peers; nil = plaintext on loopback.
	certificates *identity.Certificates
	unserved     <-chan struct{} // closed when the replica, which ends, has no clients any more
}

// shared is where the registry shares what operators write; nil for a server that is
// alone.
func (s *Server) shared() discovery.Shared {
	if s.settings.Fixed.Replicas == nil {
		return nil
	}
	s.operated = &operated{inCluster: s.settings.Fixed.Replicas.Kubernetes != nil}
	return s.operated
}

// openOffers returns where a replica of a group offers its configuration; nil for a server
// that is alone.
func (s *Server) openOffers() reload.Group {
	if s.settings.Fixed.Replicas == nil {
		return nil
	}
	s.offers = &offers{registry: s.registry, providers: s.providers}
	return s.offers
}

// openReplicas makes the server a replica of its group, if the configuration names
// one.
func (s *Server) openReplicas() error {
	c := s.settings.Fixed.Replicas
	if c == nil {
		return nil
	}
	r := &replicas{
		configured: c, balance: s.opts.BalanceCalm, log: s.log, services: s.services, all: s.clients,
		admin: func() *admin.Server { return s.admin }, member: member{name: c.Name}, operators: s.operated,
	}
	r.election = election{configured: c, member: &r.member, operated: r.operators}
	r.configuration = groupConfiguration{
		member: &r.member, offers: s.offers, peers: len(c.Peers), registry: s.registry, providers: s.providers,
		operated: r.operators, kept: s.kept, log: s.log, providing: newProviding(s.registry, s.providers, s.opts.ProviderSettle),
	}
	r.plans = planCodec{operated: r.operators, marks: s.sampler, inForce: &r.configuration.digestInForce}
	r.clients = groupClients{
		settings: s.settings, member: &r.member, xds: s.services.xds,
		connections: connections{open: map[string]net.Conn{}}, metrics: newReplicaMetrics(s.metrics),
	}
	r.relay = relay.New(s.services.lrs, s.services.xds, checkers{s.services.hds}, r.member.leads, r.version)
	options := replica.Options{
		Group: c.Group, Name: c.Name, Version: s.opts.Version, OpenEngine: r.election.open, Disk: replicaDisk{s.kept},
		Listener: s.listeners.Replicas, Open: r.plans.open, Observed: r.observed, Ordered: r.ordered, Summary: r.summary, Timing: s.opts.ReplicaTiming,
		Log: s.log, Registerer: s.metrics,
	}
	if err := r.join(&options, identity.Options{Name: replicaListener, Log: s.log, Metrics: s.identity, Trigger: &s.trigger}); err != nil {
		return err
	}
	s.replicas = r
	return nil
}

// join makes this server a replica of its group. From here on, the group decides which
// configuration is in force, and operators write through it.
func (r *replicas) join(o *replica.Options, tls identity.Options) (err error) {
	c := r.configured
	if c.Kubernetes != nil && o.Timing.Deadline == 0 {
		o.Timing.Deadline = lease.Deadline
	}
	for _, p := range c.Peers {
		o.Peers = append(o.Peers, replica.Peer{Name: p.Name, Address: p.Address})
	}
	if r.certificates, err = openTLS(c, tls, o); err != nil {
		return err
	}
	kept := r.configuration.kept
	single, err := kept.LoadPlan()
	if err != nil {
		return err
	}
	if single != nil {
		o.Known.Version = max(single.Version, single.Reserved)
	}
	if r.member.Replica, err = replica.New(*o); err != nil {
		return errors.Join(err, r.election.close())
	}
	offers := r.configuration.offers
	offers.joined, r.configuration.provided = true, offers.own()
	r.operators.member, r.operators.registry = &r.member, r.configuration.registry
	r.configuration.alone, err = replicaDisk{kept}.keepSingle(r.configuration.registry)
	return err
}

// useLoop gives the replica the loop that it belongs to.
func (r *replicas) useLoop(loop *control.Loop) {
	if r != nil {
		r.loop, r.clients.loop = loop, loop
	}
}

// tracked returns the connections of clients, which are tracked in a group only.
func (r *replicas) tracked() listen.Tracker {
	if r == nil {
		return nil
	}
	return &r.clients.connections
}

// operated is what operators see of the group; nil where there is none.
func (r *replicas) operated() admin.Replicas {
	if r == nil {
		return nil
	}
	return operatedReplicas{r}
}

// leads returns what gives an error unless this replica leads; nil for a server that is alone.
func (r *replicas) leads() func() error {
	if r == nil {
		return nil
	}
	return r.member.leading
}

// writesStatuses reports whether this server writes the statuses of LoadBalancingPolicies:
// one that is alone, and the leader of a group.
func (r *replicas) writesStatuses() bool {
	return r == nil || r.member.leading() == nil
}

// ordered carries out what an operator wrote on another replica.
func (r *replicas) ordered(ctx context.Context, o replica.Order) replica.Answer {
	a := r.admin()
	if a == nil {
		return replica.Answer{Status: http.StatusServiceUnavailable, Body: []byte(`{"error": "the leader of the group has no admin interface"}`)}
	}
	status, body := a.CarryOut(ctx, admin.Forwarded(o))
	return replica.Answer{Status: status, Body: body}
}

// singleKey has what operators wrote before the server was a replica.
const singleKey = "sources-alone"

// keepSingle keeps a copy of what operators wrote before this server was a replica. The
// first leader of a group brings its own into the group. Others follow the group, and
// say that theirs is not in force. It returns how many entries it kept.
func (d replicaDisk) keepSingle(registry *discovery.Registry) (kept int, err error) {
	if joined, err := d.LoadReplica(); err != nil || joined != nil {
		return 0, err
	}
	entries, err := registry.Entries()
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	data, err := json.Marshal(entries)
	if err != nil {
		return 0, err
	}
	return len(entries), d.state.write(singleKey, data)
}

// run takes part in the group. When ctx ends, leadership is handed over first; the
// replica goes on until it has no clients any more.
func (r *replicas) run(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	finished := make(chan error, 1)
	go func() { finished <- r.member.Run(running) }()
	go r.relay.Follow(running)
	if r.certificates != nil {
		go r.certificates.Follow(running)
	}
	go r.clients.watchRemovals(running)
	go r.configuration.follow(running)
	go r.election.watch(running)
	if r.configured.Balance {
		go (&balancer{clients: &r.clients, after: r.balance}).run(ctx) // one that stops has more to do than that
	}
	select {
	case err := <-finished:
		return errors.Join(err, r.election.close())
	case <-ctx.Done():
	}
	drops := r.loop.Current().Drops()
	r.member.Announce(drops)
	if drops {
		<-r.loop.Left() // the last replica takes back what clients drop, for which it has to lead
	}
	patience, cancel := context.WithTimeout(running, replicaPatience)
	r.member.Leave(patience)
	cancel()
	<-r.unserved
	stop()
	return errors.Join(<-finished, r.election.close())
}

func (r *replicas) version() uint64 {
	if p := r.loop.Current(); p != nil {
		return p.Version
	}
	return 0
}

func (r *replicas) observed(from group.Identity, o *peerv1.Observations) {
	if err := r.relay.Receive(from.Name, from.Incarnation, o, time.Now()); err != nil {
		r.log.Warn("rejected reports forwarded by another replica", "from", from.Name, "error", err)
	}
}

// summary tells other replicas of this one, for display.
func (r *replicas) summary() *peerv1.Summary {
	clients, inSync := r.counted.of(r.all, time.Now())
	return &peerv1.Summary{
		Clients: clamp32(clients), ClientsInSync: clamp32(inSync),
		DiscoveryStreams: clamp32(r.services.xds.Open()), LoadReportStreams: clamp32(r.services.lrs.Open()),
		Checkers: clamp32(len(r.services.hds.Checkers(time.Now()))), ConfigDigest: r.configuration.digest(),
		Connections: clamp32(r.clients.connections.count()),
	}
}

// countEvery is how old the number of clients in sync may be that other replicas show:
// heartbeats are far more frequent than anybody looks.
const countEvery = 5 * time.Second

// countedClients is the number of clients, and of those in sync, a moment ago.
type countedClients struct {
	mu            sync.Mutex
	at            time.Time
	total, inSync int
}

func (c *countedClients) of(clients *operators.Clients, now time.Time) (total, inSync int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || now.Sub(c.at) >= countEvery {
		c.at, c.total, c.inSync = now, 0, 0
		for _, client := range clients.Clients() {
			if len(client.Types) == 0 {
				continue // it only reports load
			}
			c.total++
			if client.Follows() {
				c.inSync++
			}
		}
	}
	return c.total, c.inSync
}

func clamp32(n int) uint32 { return uint32(min(max(0, n), math.MaxInt32)) }

// replicaDisk keeps what a replica has to know after a restart in the state
// directory.
type replicaDisk struct{ state *loopState }

const (
	replicaKey     = "replica"
	replicaPlanKey = "replica-plan"
)

// LoadReplica implements [replica.Disk].
func (d replicaDisk) LoadReplica() ([]byte, error) { return d.load(replicaKey) }

// SaveReplica implements [replica.Disk].
func (d replicaDisk) SaveReplica(data []byte) error { return d.state.write(replicaKey, data) }

// LoadPlan implements [replica.Disk].
func (d replicaDisk) LoadPlan() ([]byte, error) { return d.load(replicaPlanKey) }

// SavePlan implements [replica.Disk].
func (d replicaDisk) SavePlan(data []byte) error { return d.state.write(replicaPlanKey, data) }

func (d replicaDisk) load(key string) ([]byte, error) {
	v, err := d.state.store.Get(context.Background(), key)
	if errors.Is(err, isobar.ErrNotFound) {
		return nil, nil
	}
	return v.Data, err
}
