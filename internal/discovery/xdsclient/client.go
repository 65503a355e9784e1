// Package xdsclient takes endpoints from another control plane: it subscribes to
// that server's endpoint discovery as a client would, and hands the services
// that are configured, with the endpoints that are listed, to the registry.
//
// What it was told last stays in force while the server can't be reached, over
// restarts too; what breaks a rule is refused with a reason, and what stood
// before stays.
package xdsclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Client follows another control plane. Open, then Configure, then Run.
type Client struct {
	opts    Options
	metrics *metrics
	limit   rpc.LogLimit // of what the server can trigger

	changed chan struct{} // the configuration has changed; capacity 1
	saver   *keep.Saver

	outdated keep.OutdatedList

	mu     sync.Mutex // guards all below
	cfg    *Config    // nil = there is no other control plane
	table  table
	link   link
	answer chan struct{} // closed when every service is known, or was answered for
}

// link is the state of the stream, for operators.
type link struct {
	connected  bool
	since      time.Time // of connected, or of its loss
	lastUpdate time.Time // when a response was taken last
	failure    string    // why the last stream ended
	acks       uint64
	nacks      uint64
	lastNACK   string
	lastNACKAt time.Time
}

// Open loads what was listed last. Nothing is asked and nothing handed over
// before [Client.Configure] and [Client.Run].
func Open(ctx context.Context, o Options) (*Client, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	c := &Client{
		opts: o, changed: make(chan struct{}, 1),
		answer: make(chan struct{}), link: link{since: time.Now()},
	}
	c.saver = keep.NewSaver(o.Store, storeKey, keep.SaverOptions{Encode: c.encode, Log: o.Log, Source: "xds"})
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	c.metrics = newMetrics(o.Registerer)
	return c, nil
}

// Configure changes what is asked of whom; nil = nothing any more. It hands
// all services of which endpoints are known to put, and the others, with the lock
// held that keeps others from coming between. An error of put refuses the
// configuration.
//
// A service whose endpoints came from the file or from another provider until
// now begins with those: it is not empty until the first answer.
func (c *Client) Configure(cfg *Config, put func(listed, unknown []isobar.Service) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.table.configured(cfg, c.seed, time.Now())
	if err := put(next.services(), next.unknown()); err != nil {
		return err
	}
	c.cfg, c.table = cfg, next
	c.show()
	keep.Signal(c.changed)
	c.saver.Changed()
	return nil
}

// Preview returns what [Client.Configure] would hand over, and the services of
// which no endpoints are known, so that they would have none until the server
// lists some. Nothing changes.
func (c *Client) Preview(cfg *Config) (listed, unknown []isobar.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.table.configured(cfg, c.seed, time.Now())
	return next.services(), next.unknown()
}

// seed returns the endpoints that the file or another provider lists for a service
// that is about to move here.
func (c *Client) seed(name string) []isobar.ServiceLocality {
	return keep.Seed(c.opts.Registry.Get, name)
}

// WaitAnswered waits until the server has answered for every service of which
// nothing was known at the start, at most for patience. Without it, clients
// that come early would find their services missing.
func (c *Client) WaitAnswered(ctx context.Context, patience time.Duration) {
	c.mu.Lock()
	ready := c.table.answered()
	c.mu.Unlock()
	if ready {
		return
	}
	keep.Await(ctx, c.answer, patience, func() {
		c.opts.Log.Warn("the other control plane has not sent all services yet; serving the missing ones without endpoints", "waited", patience)
	})
}

// Complete reports whether the server has answered for every service, or no server is
// configured.
func (c *Client) Complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(c.table.entries, func(e *entry) bool { return !e.answered })
}

// config returns the configuration in force; nil for none.
func (c *Client) config() *Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg
}

// show brings metrics, and who waits, up to what the table says. c.mu is held.
func (c *Client) show() {
	c.table.noteUnconfirmed(time.Now())
	list := c.table.outdated()
	c.outdated.Set(list)
	c.metrics.services(&c.table)
	if c.table.answered() {
		select {
		case <-c.answer:
		default:
			close(c.answer)
		}
	}
}

// load fills the table with what was saved; it is configured later.
func (c *Client) load(ctx context.Context) error {
	data, err := c.saver.Load(ctx)
	if err != nil {
		return fmt.Errorf("loading the saved services of discovery.xds: %w", err)
	}
	if data == nil {
		return nil
	}
	return c.table.restore(data)
}

// encode returns what is to be saved.
func (c *Client) encode() (data []byte, empty bool, err error) {
	c.mu.Lock()
	now := c.table.snapshot()
	c.mu.Unlock()
	data, err = now.encode()
	return data, len(now.Services) == 0, err
}

// Config says which server to ask for what. It is not changed after it was
// handed over.
type Config struct {
	Server string // HOST:PORT
	TLS    *TLS   // nil = plaintext
	Node   Node
	// ADS asks over the aggregated stream, else the endpoint discovery service
	// is asked.
	ADS bool
	// DefaultLocality is where endpoints without a locality are; zero = an
	// assignment with such endpoints is refused.
	DefaultLocality isobar.Locality
	// EmptyHold is how long a service that becomes empty keeps its endpoints;
	// 0 = not at all.
	EmptyHold time.Duration
	Services  []Service // names and EDS names are unique
}

// TLS names the files for a connection. They are read whenever one is made.
type TLS struct {
	CA         string // certificates to trust; empty = the system's
	Cert, Key  string // the client's certificate; empty = none
	ServerName string // in the server's certificate; empty = the host of the address
}

// Node is what Isobar calls itself towards the server.
type Node struct {
	ID, Cluster string
	Locality    isobar.Locality
}

// Service is what to ask for, and what is configured beside it.
type Service struct {
	EDSName  string         // what the other control plane calls it
	Settings isobar.Service // its localities have no endpoints
	Ceiling  float64        // of localities without settings; 0 = isobar.DefaultCeiling
}

// Registry is where the services go.
type Registry interface {
	// PutListed replaces some services, or adds them.
	PutListed(services []isobar.Service) error
	// Get returns the object in force under a name, or isobar.ErrNotFound.
	Get(name string) (isobar.Object, error)
}

// Options of [Open]. Registry and Store are required.
type Options struct {
	Registry Registry
	Store    keep.Store
	// Dial opens the connection; nil = the system's.
	Dial       func(ctx context.Context, address string) (net.Conn, error)
	Log        *slog.Logger          // nil = none
	Registerer prometheus.Registerer // nil = no metrics
}

func (o Options) complete() (Options, error) {
	if o.Registry == nil || o.Store == nil {
		return o, errors.New("xdsclient: Registry and Store must be given")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Servers built with grpc-go end connections that ping more often than every
// five minutes, unless they were told otherwise.
var pings = keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}

// connect makes the connection for one stream: certificates are read again, and
// nothing retries beside us.
func connect(cfg *Config, dial func(ctx context.Context, address string) (net.Conn, error)) (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if cfg.TLS != nil {
		config, err := cfg.TLS.config()
		if err != nil {
			return nil, err
		}
		security = credentials.NewTLS(config)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(security), grpc.WithKeepaliveParams(pings),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	}
	target := "dns:///" + cfg.Server
	if dial != nil {
		target = "passthrough:///" + cfg.Server
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, address) }))
	}
	return grpc.NewClient(target, opts...)
}

func (t *TLS) config() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("discovery.xds.tls.ca: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("discovery.xds.tls.ca: no certificate in %s", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("discovery.xds.tls.cert: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// State of a service.
type State string

// The states.
const (
	Waiting State = "waiting" // nothing is known: the service has no assignment yet
	Current State = "current" // as the server has listed it on the present stream
	Kept    State = "kept"    // as it was known before; on the present stream, if any, the server has not answered for it
	Held    State = "held"    // the server says that it is empty; its endpoints stay for now
	Refused State = "refused" // the last assignment broke a rule; the one before stays
	Empty   State = "empty"   // the server lists no endpoints
)

var states = [...]State{Waiting, Current, Kept, Held, Refused, Empty}

func (e *entry) state() State {
	switch {
	case e.refused != "":
		return Refused
	case !e.emptySince.IsZero():
		return Held
	case !e.known && !e.answered:
		return Waiting
	case e.endpoints() == 0:
		return Empty
	case !e.answered:
		return Kept
	default:
		return Current
	}
}

// Status is the state of everything, for operators.
type Status struct {
	Server     string          `json:"server"`
	Service    string          `json:"service"` // eds or ads
	Connected  bool            `json:"connected"`
	Since      time.Time       `json:"since"`                // of the connection, or of its loss
	LastUpdate time.Time       `json:"last_update,omitzero"` // when a response was accepted last
	Failure    string          `json:"failure,omitempty"`    // why there is no stream
	ACKs       uint64          `json:"acks"`                 // since the start
	NACKs      uint64          `json:"nacks"`                // since the start
	LastNACK   string          `json:"last_nack,omitempty"`  // what was told to the server
	LastNACKAt time.Time       `json:"last_nack_at,omitzero"`
	Services   []ServiceStatus `json:"services"` // sorted by EDS name
}

// ServiceStatus is the state of one service.
type ServiceStatus struct {
	Name       string            `json:"name"`
	EDSName    string            `json:"eds_name"`
	State      State             `json:"state"`
	Listed     time.Time         `json:"listed,omitzero"` // when what is in force was listed
	Localities int               `json:"localities"`
	Endpoints  int               `json:"endpoints"`
	EmptySince time.Time         `json:"empty_since,omitzero"`          // of state held
	Refused    string            `json:"refused,omitempty"`             // of state refused
	LeftOut    int               `json:"left_out,omitempty"`            // endpoints that can't be used
	Reason     string            `json:"left_out_reason,omitempty"`     // of the first of them
	Unlisted   []isobar.Locality `json:"unlisted_localities,omitempty"` // they have settings, but the server lists nothing there
}

// Status returns how things stand; false when there is no other control plane.
func (c *Client) Status() (Status, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg == nil {
		return Status{}, false
	}
	s := Status{
		Server: c.cfg.Server, Service: "eds", Connected: c.link.connected, Since: c.link.since, LastUpdate: c.link.lastUpdate,
		ACKs: c.link.acks, NACKs: c.link.nacks, LastNACK: c.link.lastNACK, LastNACKAt: c.link.lastNACKAt,
		Services: make([]ServiceStatus, 0, len(c.table.entries)),
	}
	if c.cfg.ADS {
		s.Service = "ads"
	}
	if !c.link.connected {
		s.Failure = c.link.failure
	}
	for _, e := range c.table.entries {
		s.Services = append(s.Services, ServiceStatus{
			Name: e.Settings.Name, EDSName: e.EDSName, State: e.state(), Listed: e.at,
			Localities: len(e.listed), Endpoints: e.endpoints(), EmptySince: e.emptySince, Refused: e.refused,
			LeftOut: e.leftOut, Reason: e.reason, Unlisted: e.unlisted(),
		})
	}
	return s, true
}

// Outdated lists the services whose endpoints are the previous ones, sorted: the
// server can't be reached or has not answered for them yet, what it says is
// refused, or it calls them empty.
// It waits for nobody, so a disk that is slow to take a change holds no decision up.
func (c *Client) Outdated() []keep.Outdated {
	return c.outdated.Get()
}
