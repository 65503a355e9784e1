// Package member makes a server a member of a group of replicas: the election, plans that
// come from the leader and go to followers, the configuration that the group has in force,
// what operators write, and clients that come from other replicas. Packages replica and
// replica/group decide who leads and carry plans; they know nothing of what plans are.
package member

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/providers"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/replica"
	lease "github.com/isobar-xds/isobar/internal/replica/engine/kubernetes"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
	"github.com/isobar-xds/isobar/internal/xds"
)

// patience is how long a replica that stops waits until the engine knows that it leads no
// more.
const patience = 3 * time.Second

// Options of a Member. All are required but those with a default.
type Options struct {
	Replicas  *config.Replicas
	Operated  *Operated
	Offers    *Offers
	Registry  *discovery.Registry
	Providers *providers.Set
	State     State

	XDS      *xds.Server
	LRS      *lrs.Server
	HDS      *hds.Server
	Checkers relay.Checkers
	Clients  Clients
	Marks    Marks
	Admin    func() *admin.Server // nil where there is no admin interface
	// Interval returns how often clients and checkers report, and Tick how often the leader decides.
	Interval, Tick func() time.Duration

	Version  string // of the program
	Listener net.Listener
	// Identity is how certificates are followed and counted.
	Identity identity.Options
	// ProviderGrace is how long a provider of a new leader has to have listed everything
	// before what it does not list counts as gone; 0 = 5 minutes.
	ProviderGrace time.Duration
	// BalanceAfter is for how long the same replicas have to be live before this one closes
	// connections that others should have; 0 = a minute.
	BalanceAfter time.Duration
	Timing       replica.Timing // the zero value is what the documentation says
	Log          *slog.Logger
	Registerer   prometheus.Registerer
}

// Clients lists the clients of this server.
type Clients interface {
	Clients() []admin.Client
	reporters
}

// Member is a server as a member of its group. It implements [control.Group].
type Member struct {
	configured *config.Replicas
	balance    time.Duration // Options.BalanceAfter
	log        *slog.Logger
	xds        *xds.Server
	lrs        *lrs.Server
	hds        *hds.Server
	all        Clients
	loop       *control.Loop // set before it runs
	admin      func() *admin.Server

	self          self
	relay         *relay.Relay
	warmed        uint64 // epoch of the leader that got the last windows; of the loop
	election      election
	operators     *Operated
	plans         planCodec
	configuration groupConfiguration
	clients       groupClients
	counted       countedClients
	// certificates are what this replica shows to its peers; nil = plaintext on loopback.
	certificates *identity.Certificates
	unserved     <-chan struct{} // closed when the replica, which ends, has no clients any more
}

// Join makes a server a member of its group. From here on, the group decides which
// configuration is in force, and operators write through it.
func Join(o *Options) (*Member, error) {
	c := o.Replicas
	m := &Member{
		configured: c, balance: o.BalanceAfter, log: o.Log, xds: o.XDS, lrs: o.LRS, hds: o.HDS, all: o.Clients,
		admin: o.Admin, self: self{name: c.Name}, operators: o.Operated,
	}
	m.election = election{configured: c, self: &m.self, operated: m.operators}
	m.configuration = groupConfiguration{
		self: &m.self, offers: o.Offers, peers: len(c.Peers), registry: o.Registry, providers: o.Providers,
		operated: m.operators, kept: o.State, log: o.Log, providing: newProviding(o.Registry, o.Providers, o.ProviderGrace),
	}
	m.plans = planCodec{operated: m.operators, marks: o.Marks, inForce: &m.configuration.digestInForce}
	m.clients = groupClients{
		interval: o.Interval, self: &m.self, xds: o.XDS,
		connections: connections{open: map[string]net.Conn{}}, metrics: newMetrics(o.Registerer),
	}
	m.relay = relay.New(o.LRS, o.XDS, o.Checkers, standing{m, o.Tick})
	o.Registerer.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "isobar_replica_unkept_windows_total",
		Help: "Windows of load report streams that a replica did not keep for a new leader, or did not take from another replica, for lack of memory.",
	}, func() float64 { return float64(m.relay.Unkept()) }))
	options := replica.Options{
		Group: c.Group, Name: c.Name, Version: o.Version, OpenEngine: m.election.open, Disk: disk{o.State},
		Listener: o.Listener, Open: m.plans.open, Observed: m.observed, Ordered: m.ordered, Reporting: m.reporting, Summary: m.summary, Timing: o.Timing,
		Log: o.Log, Registerer: o.Registerer,
	}
	if err := m.join(&options, o.Identity); err != nil {
		return nil, err
	}
	return m, nil
}

// join opens the certificates and the election, and takes over what the server was before.
func (m *Member) join(o *replica.Options, tls identity.Options) (err error) {
	c := m.configured
	if c.Kubernetes != nil && o.Timing.Deadline == 0 {
		o.Timing.Deadline = lease.Deadline
	}
	for _, p := range c.Peers {
		o.Peers = append(o.Peers, replica.Peer{Name: p.Name, Address: p.Address})
	}
	if m.certificates, err = openTLS(c, tls, o); err != nil {
		return err
	}
	kept := m.configuration.kept
	single, err := kept.LoadPlan()
	if err != nil {
		return err
	}
	if single != nil {
		o.Known.Version = max(single.Version, single.Reserved)
	}
	if m.configuration.before, err = (disk{kept}).keepSingle(m.configuration.registry, single); err != nil {
		return err
	}
	if m.self.Replica, err = replica.New(*o); err != nil {
		return errors.Join(err, m.election.close())
	}
	offers := m.configuration.offers
	offers.joined, m.configuration.provided = true, offers.own()
	m.operators.self, m.operators.registry = &m.self, m.configuration.registry
	return nil
}

// Serve names the loop that decides with the group. unserved is closed when the server,
// which ends, has no clients any more.
func (m *Member) Serve(loop *control.Loop, unserved <-chan struct{}) {
	m.loop, m.clients.loop, m.unserved = loop, loop, unserved
}

// Connections tracks the connections of clients.
func (m *Member) Connections() listen.Tracker { return &m.clients.connections }

// Operators is the group as operators see it.
func (m *Member) Operators() admin.Replicas { return operatedReplicas{m} }

// Await implements [xds.Options.Await]: it returns when this replica serves the version that
// a client shows, or does not know of it.
func (m *Member) Await(ctx context.Context, peer, version string) error {
	return m.clients.await(ctx, peer, version)
}

// Returns implements [xds.Options.Returns]: it refuses a client that comes back while the
// group has lost its plans.
func (m *Member) Returns() error { return m.clients.returns() }

// Leading returns an error unless this replica leads.
func (m *Member) Leading() error { return m.self.leading() }

// Certificates are what this replica shows to its peers; nil = plaintext on loopback.
func (m *Member) Certificates() *identity.Certificates { return m.certificates }

// ordered carries out what an operator wrote on another replica.
func (m *Member) ordered(ctx context.Context, o replica.Order) replica.Answer {
	a := m.admin()
	if a == nil {
		return replica.Answer{Status: http.StatusServiceUnavailable, Body: []byte(`{"error": "the leader of the group has no admin interface"}`)}
	}
	status, body := a.CarryOut(ctx, admin.Forwarded(o))
	return replica.Answer{Status: status, Body: body}
}

// Run takes part in the group. When ctx ends, leadership is handed over first; the
// replica goes on until it has no clients any more.
func (m *Member) Run(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	finished := make(chan error, 1)
	go func() { finished <- m.self.Run(running) }()
	go m.relay.Follow(running)
	if m.certificates != nil {
		go m.certificates.Follow(running)
	}
	go m.clients.watchRemovals(running)
	go m.configuration.follow(running)
	go m.election.watch(running)
	go m.followReporting(running)
	if m.configured.Balance {
		go (&balancer{clients: &m.clients, after: m.balance}).run(ctx) // one that stops has more to do than that
	}
	select {
	case err := <-finished:
		return errors.Join(err, m.election.close())
	case <-ctx.Done():
	}
	drops := m.loop.Current().Drops()
	m.self.Announce(drops)
	if drops {
		<-m.loop.Left() // the last replica takes back what clients drop, for which it has to lead
	}
	leaving, cancel := context.WithTimeout(running, patience)
	m.self.Leave(leaving)
	cancel()
	<-m.unserved
	stop()
	return errors.Join(<-finished, m.election.close())
}

// standing is a member's standing in its group. It implements [relay.Standing].
type standing struct {
	m    *Member
	tick func() time.Duration
}

// Leads implements [relay.Standing].
func (s standing) Leads() bool { return s.m.self.leads() }

// Version implements [relay.Standing].
func (s standing) Version() uint64 {
	if p := s.m.loop.Current(); p != nil {
		return p.Version
	}
	return 0
}

// Tick implements [relay.Standing].
func (s standing) Tick() time.Duration { return s.tick() }

// Live implements [relay.Standing].
func (s standing) Live(replica string) bool { return s.m.self.Live(replica) }

func (m *Member) observed(from group.Identity, o *peerv1.Observations) {
	if err := m.relay.Receive(from.Name, from.Incarnation, o, time.Now()); err != nil {
		m.log.Warn("rejected reports forwarded by another replica", "from", from.Name, "error", err)
	}
}

// State keeps what a replica has to know after a restart, and has what the server kept
// before it was one.
type State interface {
	// LoadPlan returns the plan of the single server; nil where there is none.
	LoadPlan() (*plan.Saved, error)
	// Read returns what is kept under a key; nil where nothing is.
	Read(key string) ([]byte, error)
	Write(key string, data []byte) error
}

// disk is the state as package replica uses it.
type disk struct{ state State }

const (
	replicaKey     = "replica"
	replicaPlanKey = "replica-plan"
)

// LoadReplica implements [replica.Disk].
func (d disk) LoadReplica() ([]byte, error) { return d.state.Read(replicaKey) }

// SaveReplica implements [replica.Disk].
func (d disk) SaveReplica(data []byte) error { return d.state.Write(replicaKey, data) }

// LoadPlan implements [replica.Disk].
func (d disk) LoadPlan() ([]byte, error) { return d.state.Read(replicaPlanKey) }

// SavePlan implements [replica.Disk].
func (d disk) SavePlan(data []byte) error { return d.state.Write(replicaPlanKey, data) }
