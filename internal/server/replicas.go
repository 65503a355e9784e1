package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/etcd"
	"github.com/isobar-xds/isobar/internal/replica/engine/file"
	lease "github.com/isobar-xds/isobar/internal/replica/engine/kubernetes"
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
	// certificates are what this replica shows to its peers; nil = plaintext on loopback.
	certificates *identity.Certificates

	connections connections
	counted     countedClients
	refusing    atomic.Pointer[time.Time] // since when clients that return are refused; nil = they are not

	mu     sync.Mutex // held by whoever encodes or decodes
	warmed uint64     // epoch of the leader that got the last windows; of the loop
	sharer plan.Sharer
	last   *plan.Opened // what was opened last
	found  *health.SavedKeeper
	health []byte // found, encoded

	configuring sync.Mutex // held by whoever puts in force what the group has
	assumed     uint64     // the epoch in which this replica took over; 0 = none
	inForce     *offered   // what of this replica's own file is in force; nil = another's
	provided    *offered   // by which the providers of this replica list endpoints; nil = the file of the start
	providing   providing
	followed    followed
	// digestInForce names the configuration that this replica's plans are made with.
	digestInForce atomic.Pointer[string]
	accepted      atomic.Pointer[string] // digest of the configuration that an operator accepted

	engineWarnings atomic.Pointer[[]string]
	alone          int // services of the API and marks of the time before the group
}

// openReplicas makes the server a replica of its group, if the configuration names
// one.
func (s *Server) openReplicas() error {
	c := s.fixed.Replicas
	if c == nil {
		return nil
	}
	r := &replicas{s: s, connections: connections{open: map[string]net.Conn{}}, metrics: newReplicaMetrics(s.metrics)}
	r.relay = relay.New(s.lrs, s.xds, checkers{s.hds}, r.leads, r.version)
	options := replica.Options{
		Group: c.Group, Name: c.Name, Version: s.opts.Version, OpenEngine: r.openEngine, Disk: replicaDisk{s.kept},
		Listener: s.listeners.Replicas, Open: r.open, Observed: r.observed, Ordered: r.ordered, Summary: r.summary, Timing: s.opts.ReplicaTiming,
		Log: s.log, Registerer: s.metrics,
	}
	if c.Kubernetes != nil && options.Timing.Deadline == 0 {
		options.Timing.Deadline = lease.Deadline
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
	s.replicas, r.provided = r, s.offered.Load()
	return r.keepSingle()
}

// singleKey has what operators wrote before the server was a replica.
const singleKey = "sources-alone"

// keepSingle keeps a copy of what operators wrote before this server was a replica. The
// first leader of a group brings its own into the group. Others follow the group, and
// say that theirs is not in force.
func (r *replicas) keepSingle() error {
	if joined, err := (replicaDisk{r.s.kept}).LoadReplica(); err != nil || joined != nil {
		return err
	}
	entries, err := r.s.registry.Entries()
	if err != nil || len(entries) == 0 {
		return err
	}
	data, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	r.alone = len(entries)
	return r.s.kept.write(singleKey, data)
}

func (r *replicas) close() error {
	var err error
	for _, closer := range r.closers {
		err = errors.Join(err, closer())
	}
	return err
}

func (r *replicas) openEngine(self group.Identity) (engine.Engine, error) {
	c := r.s.fixed.Replicas
	switch {
	case c.Kubernetes != nil:
		return openLease(c, self)
	case c.Etcd == nil:
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

// openLease opens the election by a Lease.
func openLease(c *config.Replicas, self group.Identity) (engine.Engine, error) {
	cluster := kubernetes.Cluster{Kubeconfig: c.Kubernetes.Kubeconfig, Context: c.Kubernetes.Context}
	api, err := cluster.REST()
	if err != nil {
		return nil, fmt.Errorf("replicas.election.kubernetes: %w", err)
	}
	namespace := c.Kubernetes.Namespace
	if namespace == "" {
		data, err := os.ReadFile(podNamespace)
		if err != nil {
			return nil, fmt.Errorf("replicas.election.kubernetes: the namespace of the Pod can't be read; set namespace: %w", err)
		}
		namespace = strings.TrimSpace(string(data))
	}
	return lease.Open(lease.Options{Config: api, Namespace: namespace, Lease: c.Kubernetes.Lease, Group: c.Group, Self: self})
}

// podNamespace has the namespace of the Pod in which the process runs.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// replicaListener names the listener for peers in what the server tells of certificates.
const replicaListener = "replicas"

// openTLS reads the certificates of connections between replicas.
func (r *replicas) openTLS(c *config.Replicas, o *replica.Options) error {
	if c.TLS == nil {
		return nil
	}
	files := identity.DialFiles{CA: c.TLS.ClientCA, Cert: c.TLS.Cert, Key: c.TLS.Key}
	options := identity.Options{Name: replicaListener, Log: r.s.log, Metrics: r.s.identity, Trigger: &r.s.trigger}
	var err error
	if r.certificates, err = identity.OpenCertificates(*c.TLS, options); err != nil {
		return err
	}
	o.ServerTLS = r.certificates.Config("h2")
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
	if r.certificates != nil {
		go r.certificates.Follow(running)
	}
	go r.watchRemovals(running)
	go r.keepConfigured(running)
	go r.watchEngine(running)
	go r.balance(ctx) // one that stops has more to do than that
	select {
	case err := <-finished:
		return errors.Join(err, r.close())
	case <-ctx.Done():
	}
	r.replica.Announce()
	if r.leads() && r.s.loop.Current().Drops() {
		<-r.s.loop.Left() // the last replica takes back what clients drop, for which it has to lead
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
		r.s.log.Warn("rejected reports forwarded by another replica", "from", from.Name, "error", err)
	}
}

// summary tells other replicas of this one, for display.
func (r *replicas) summary() *peerv1.Summary {
	clients, inSync := r.counted.of(r.s, time.Now())
	return &peerv1.Summary{
		Clients: clamp32(clients), ClientsInSync: clamp32(inSync),
		DiscoveryStreams: clamp32(r.s.xds.Open()), LoadReportStreams: clamp32(r.s.lrs.Open()),
		Checkers: clamp32(len(r.s.hds.Checkers(time.Now()))), ConfigDigest: r.digest(),
		Connections: clamp32(r.connections.count()),
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

func (c *countedClients) of(s *Server, now time.Time) (total, inSync int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || now.Sub(c.at) >= countEvery {
		c.at, c.total, c.inSync = now, 0, 0
		for _, client := range s.clients() {
			if len(client.Types) == 0 {
				continue // it only reports load
			}
			c.total++
			if client.InSync {
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
