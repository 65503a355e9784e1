package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/etcd"
	"github.com/isobar-xds/isobar/internal/replica/engine/file"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// replicaPatience is how long a replica that stops waits until the engine knows that
// it leads no more.
const replicaPatience = 3 * time.Second

// replicas is what makes a server a replica of a group.
type replicas struct {
	s       *Server
	replica *replica.Replica
	relay   *relay.Relay
	closers []func() error
	metrics replicaMetrics

	connections connections

	mu     sync.Mutex // held by whoever encodes or decodes
	sharer plan.Sharer
	last   *plan.Opened // what was opened last
	found  *health.SavedKeeper
	health []byte // found, encoded

	digests digests
}

// openReplicas makes the server a replica of its group, if the configuration names
// one.
func (s *Server) openReplicas() error {
	c := s.cfg.Replicas
	if c == nil {
		return nil
	}
	if err := s.replicable(); err != nil {
		return err
	}
	r := &replicas{s: s, connections: connections{open: map[string]net.Conn{}}, metrics: newReplicaMetrics(s.metrics)}
	r.relay = relay.New(s.lrs, s.xds, checkers{s.hds}, r.leads, r.version)
	options := replica.Options{
		Group: c.Group, Name: c.Name, Version: s.opts.Version, OpenEngine: r.openEngine, Disk: replicaDisk{s.kept},
		Listener: s.listeners.Replicas, Open: r.open, Observed: r.observed, Ordered: r.ordered, Summary: r.summary, Timing: s.opts.ReplicaTiming,
		Log: s.log, Registerer: s.metrics,
	}
	for _, p := range c.Peers {
		options.Peers = append(options.Peers, replica.Peer{Name: p.Name, Address: p.Address})
	}
	if err := r.openTLS(c, &options); err != nil {
		return err
	}
	single, err := s.kept.LoadPlan()
	if err != nil {
		return err
	}
	if single != nil {
		options.Known.Version = max(single.Version, single.Reserved)
	}
	if r.replica, err = replica.New(options); err != nil {
		return errors.Join(err, r.close())
	}
	s.replicas = r
	return nil
}

// replicable refuses state that a group does not share yet: it would be lost with
// this replica.
func (s *Server) replicable() error {
	_, operators := s.registry.State()
	owned := 0
	for _, o := range s.registry.List() {
		if o.Owner == isobar.OwnerAPI {
			owned++
		}
	}
	if owned == 0 && len(operators.Overrides()) == 0 {
		return nil
	}
	return fmt.Errorf("replicas: state_dir %s has %d services of the admin API and %d health marks, which a group of replicas does not share yet: "+
		"start without replicas, remove them, and write the services into the configuration file", s.cfg.StateDir, owned, len(operators.Overrides()))
}

func (r *replicas) close() error {
	var err error
	for _, closer := range r.closers {
		err = errors.Join(err, closer())
	}
	return err
}

func (r *replicas) openEngine(self group.Identity) (engine.Engine, error) {
	c := r.s.cfg.Replicas
	if c.Etcd == nil {
		return file.Open(c.File, c.Group, self)
	}
	settings := clientv3.Config{
		Endpoints: c.Etcd.Endpoints, DialTimeout: 3 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(),
	}
	if t := c.Etcd.TLS; t != nil {
		tlsConfig, err := identity.DialFiles{CA: t.CA, Cert: t.Cert, Key: t.Key}.Config()
		if err != nil {
			return nil, fmt.Errorf("replicas.election.etcd: %w", err)
		}
		tlsConfig.ServerName = t.ServerName
		settings.TLS = tlsConfig
	}
	client, err := clientv3.New(settings)
	if err != nil {
		return nil, fmt.Errorf("replicas.election.etcd: %w", err)
	}
	r.closers = append(r.closers, client.Close)
	return etcd.Open(etcd.Options{Client: client, Prefix: c.Etcd.Prefix, Group: c.Group, Self: self})
}

// openTLS reads the certificates of connections between replicas.
func (r *replicas) openTLS(c *config.Replicas, o *replica.Options) error {
	if c.TLS == nil {
		return nil
	}
	files := identity.DialFiles{CA: c.TLS.ClientCA, Cert: c.TLS.Cert, Key: c.TLS.Key}
	certificates, err := identity.OpenCertificates(*c.TLS, identity.Options{Name: "replicas", Log: r.s.log, Metrics: r.s.security.metrics, Bell: &r.s.bell})
	if err != nil {
		return err
	}
	r.s.security.replicas = certificates
	o.ServerTLS = certificates.Config("h2")
	first, err := files.Config()
	if err != nil {
		return err
	}
	// Who answers is known by the URI in its certificate, which names group and
	// replica, and not by a host name. The files are read anew for each connection.
	o.ClientTLS = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: first.Certificates,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, without the host name
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			now, err := files.Config()
			if err != nil || len(now.Certificates) == 0 {
				return &first.Certificates[0], nil //nolint:nilerr // the last good one stays
			}
			return &now.Certificates[0], nil
		},
		VerifyConnection: func(s tls.ConnectionState) error { return verifyReplica(files, s) },
	}
	return nil
}

// verifyReplica asserts that a certificate is signed by the group's authority.
func verifyReplica(files identity.DialFiles, s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the replica shows no certificate")
	}
	trusted, err := files.Config()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: trusted.RootCAs, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// run takes part in the group. When ctx ends, leadership is handed over first; the
// replica goes on until done is closed.
func (r *replicas) run(ctx context.Context, done <-chan struct{}) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	finished := make(chan error, 1)
	go func() { finished <- r.replica.Run(running) }()
	go r.relay.Follow(running)
	go r.watchRemovals(running)
	select {
	case err := <-finished:
		return errors.Join(err, r.close())
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(running, replicaPatience)
	r.replica.Leave(patience)
	cancel()
	<-done
	stop()
	return errors.Join(<-finished, r.close())
}

func (r *replicas) leads() bool {
	role, _ := r.replica.Role()
	return role == group.Leading || role == group.Caretaker
}

func (r *replicas) version() uint64 {
	if p := r.s.loop.Current(); p != nil {
		return p.Version
	}
	return 0
}

func (r *replicas) observed(from group.Identity, o *peerv1.Observations) {
	if err := r.relay.Receive(from.Name, from.Incarnation, o, time.Now()); err != nil {
		r.s.log.Warn("refused what another replica's clients told", "from", from.Name, "error", err)
	}
}

// summary tells other replicas of this one, for display.
func (r *replicas) summary() *peerv1.Summary {
	return &peerv1.Summary{
		DiscoveryStreams: clamp32(r.s.xds.Open()), LoadReportStreams: clamp32(r.s.lrs.Open()),
		Checkers: clamp32(len(r.s.hds.Checkers(time.Now()))), ConfigDigest: r.digest(),
	}
}

// operated is what operators see of the group; nil where there is none.
func (r *replicas) operated() admin.Replicas {
	if r == nil {
		return nil
	}
	return operatedReplicas{r}
}

// operatedReplicas shows the group to operators.
type operatedReplicas struct{ r *replicas }

// State implements [admin.Replicas].
func (o operatedReplicas) State() admin.ReplicaGroup {
	s := o.r.replica.Status()
	out := admin.ReplicaGroup{
		Group: s.Group, Name: s.Name, Role: s.Role, Since: s.Since, Leader: s.Leader, Epoch: s.Epoch, Engine: s.Engine, Behind: s.Behind,
		Removes: s.Removes, Spare: s.Spare, Agreed: o.r.agreed(), Alarms: s.Alarms,
	}
	for _, q := range s.Replicas {
		out.Replicas = append(out.Replicas, admin.ReplicaState(q))
	}
	return out
}

// Order implements [admin.Replicas].
func (o operatedReplicas) Order(ctx context.Context, f admin.Forwarded) (status int, body []byte, forwarded bool, err error) {
	a, forwarded, err := o.r.replica.Order(ctx, replica.Order(f))
	return a.Status, a.Body, forwarded, err
}

// ordered carries out what an operator wrote on another replica.
func (r *replicas) ordered(ctx context.Context, o replica.Order) replica.Answer {
	if r.s.admin == nil {
		return replica.Answer{Status: http.StatusServiceUnavailable, Body: []byte(`{"error": "the leader of the group has no admin interface"}`)}
	}
	status, body := r.s.admin.CarryOut(ctx, admin.Forwarded(o))
	return replica.Answer{Status: status, Body: body}
}

// StepDown implements [admin.Replicas].
func (o operatedReplicas) StepDown(who string) (string, error) { return o.r.replica.StepDown(who) }

// objects are the services as operators see them.
func (s *Server) objects() admin.Objects {
	if s.replicas == nil {
		return s.registry
	}
	return groupObjects{s.registry}
}

// groupObjects refuses to write what a group does not share yet.
type groupObjects struct{ *discovery.Registry }

var errUnshared = fmt.Errorf("a group of replicas does not share what is written over the admin API yet, but the configuration file (%w)", isobar.ErrOwned)

// Put implements [admin.Objects].
func (groupObjects) Put(string, isobar.Service, uint64) (isobar.Object, uint64, error) {
	return isobar.Object{}, 0, errUnshared
}

// PutAll implements [admin.Objects].
func (groupObjects) PutAll([]isobar.Service) (uint64, error) { return 0, errUnshared }

// Delete implements [admin.Objects].
func (groupObjects) Delete(string, uint64) (uint64, error) { return 0, errUnshared }

// SetHealth implements [admin.Objects].
func (groupObjects) SetHealth(string, string, isobar.HealthStatus) (uint64, error) {
	return 0, errUnshared
}

func clamp32(n int) uint32 { return uint32(min(max(0, n), math.MaxInt32)) }

// join makes the loop one of a group.
func (r *replicas) join(o *control.Options) {
	if r == nil {
		return
	}
	o.Group, o.Topology = r, groupTopology{r}
	o.Reports, o.Clients, o.Checkers = groupReports{r.relay}, r.relay, groupCheckers{r.relay}
}

// Changed implements [control.Group].
func (r *replicas) Changed() <-chan struct{} { return r.replica.Changed() }

// Role implements [control.Group].
func (r *replicas) Role() (control.GroupRole, uint64) {
	switch role, epoch := r.replica.Role(); role {
	case group.Leading:
		return control.Leads, epoch
	case group.Caretaker:
		return control.Cares, epoch
	case group.Follower, group.Gathering, group.Claiming:
	}
	return control.Follows, 0
}

// Received implements [control.Group].
func (r *replicas) Received() *plan.Opened {
	if served, ok := r.replica.Served(); ok {
		o, _ := served.Opened.(*plan.Opened) // nil for a plan of this replica itself
		return o
	}
	return nil
}

// Base implements [control.Group].
func (r *replicas) Base() *plan.Opened {
	if base, ok := r.replica.Base(); ok {
		o, _ := base.Opened.(*plan.Opened)
		return o
	}
	return nil
}

// Next implements [control.Group].
func (r *replicas) Next(reapply bool) (uint64, error) {
	version, err := r.replica.Next(reapply)
	return version, r.explained(err)
}

// explained tells operators which replica decides.
func (r *replicas) explained(err error) error {
	if !errors.Is(err, group.ErrNotLeading) {
		return err
	}
	if leader := r.replica.Status().Leader; leader != "" && leader != r.s.cfg.Replicas.Name {
		return fmt.Errorf("%w: replica %s leads the group; ask it", control.ErrFollower, leader)
	}
	return fmt.Errorf("%w: no replica leads the group at the moment", control.ErrFollower)
}

// Publish implements [control.Group].
func (r *replicas) Publish(p *plan.Plan, o plan.Origin, found *health.SavedKeeper, reapply bool) error {
	content, err := r.encode(p, o, found)
	if err != nil {
		return err
	}
	return r.explained(r.replica.Publish(p.Version, content, reapply))
}

// Reserved implements [control.Group].
func (r *replicas) Reserved() uint64 {
	if served, ok := r.replica.Served(); ok {
		return served.Claim.Last()
	}
	return 0
}

// Report implements [control.Group].
func (r *replicas) Report(now time.Time, healthOnly bool) {
	r.relay.Forget() // what others told when this replica led
	r.replica.Report(r.relay.Observations(now, healthOnly))
}

// Designate implements [control.Group].
func (r *replicas) Designate(o *plan.Opened) {
	r.s.hds.Designate(o.Plan.Topology, o.Health.Placement.Designations)
}

// encode writes a plan as it goes to other replicas.
func (r *replicas) encode(p *plan.Plan, o plan.Origin, found *health.SavedKeeper) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shared, err := r.sharer.Share(p, o)
	if err != nil {
		return nil, err
	}
	if found != r.found {
		if r.health, err = json.Marshal(found); err != nil {
			return nil, fmt.Errorf("what checkers found can't be encoded: %w", err)
		}
		r.found = found
	}
	content := &peerv1.PlanContent{Format: contentFormat, Header: shared.Header, Health: r.health, Services: make([]*peerv1.ServiceContent, len(shared.Services))}
	for i := range shared.Services {
		s := &shared.Services[i]
		content.Services[i] = &peerv1.ServiceContent{Name: s.Name, Configuration: s.Configuration, Decision: s.Decision}
	}
	return proto.Marshal(content)
}

// contentFormat is the version of the content of plans that this program writes and
// reads.
const contentFormat = 1

// open reads a plan of another replica.
func (r *replicas) open(data []byte) (any, error) {
	content := &peerv1.PlanContent{}
	if err := proto.Unmarshal(data, content); err != nil {
		return nil, err
	}
	if f := content.GetFormat(); f != contentFormat {
		return nil, fmt.Errorf("the plan has format %d, this program reads %d: %w", f, contentFormat, group.ErrNewerFormat)
	}
	shared := &plan.Shared{Header: content.GetHeader(), Services: make([]plan.SharedService, len(content.GetServices()))}
	for i, s := range content.GetServices() {
		shared.Services[i] = plan.SharedService{Name: s.GetName(), Configuration: s.GetConfiguration(), Decision: s.GetDecision()}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o, err := plan.Open(shared, r.last, time.Now())
	if err != nil {
		return nil, err
	}
	if len(content.GetHealth()) > 0 {
		if err := json.Unmarshal(content.GetHealth(), &o.Health); err != nil {
			return nil, fmt.Errorf("what checkers found: %w", err)
		}
	}
	r.last = o
	return o, nil
}

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

// groupReports and groupCheckers show the loop what all replicas told.
type groupReports struct{ *relay.Relay }

// Collect implements [control.Reports].
func (g groupReports) Collect(now time.Time) []load.StreamWindow { return g.Windows(now) }

type groupCheckers struct{ *relay.Relay }

// Collect implements [control.Checkers].
func (g groupCheckers) Collect(now time.Time) []health.Report { return g.Votes(now) }

// digests caches the digest of the configuration that this replica has.
type digests struct {
	mu       sync.Mutex
	topology *isobar.Topology
	digest   string
}

// digest returns the digest of the services and the network that this replica's own
// configuration lists.
func (r *replicas) digest() string {
	topology, _ := r.s.registry.State()
	d := &r.digests
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.topology == topology {
		return d.digest
	}
	data, err := json.Marshal(struct {
		Services []isobar.Service     `json:"services"`
		Latency  []isobar.LatencyRule `json:"latency"`
		Egress   []isobar.EgressRule  `json:"egress"`
	}{topology.Services, topology.Network.Rules(), topology.Network.Egress()})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	d.topology, d.digest = topology, hex.EncodeToString(sum[:8])
	return d.digest
}

// groupTopology is the configuration that the group shares.
type groupTopology struct{ r *replicas }

// Changed implements [control.Topology].
func (g groupTopology) Changed() <-chan struct{} { return g.r.s.registry.Changed() }

// State implements [control.Topology]: the shared configuration. That of this
// replica's own file takes effect once more than half of the group have the same, or
// while the group has none.
func (g groupTopology) State() (*isobar.Topology, health.Table) {
	r := g.r
	own, operators := r.s.registry.State()
	current := r.s.loop.Current()
	if current == nil {
		if base := r.Base(); base != nil {
			current = base.Plan
		}
	}
	if current == nil || r.agreed() {
		return own, operators
	}
	return current.Topology, operators
}

// agreed reports whether more than half of the group have this replica's
// configuration.
func (r *replicas) agreed() bool {
	have, digest := 1, r.digest()
	for _, other := range r.replica.Digests() {
		if other == digest {
			have++
		}
	}
	return have > (len(r.s.cfg.Replicas.Peers)+1)/2
}
