// Package listen is what stands between the network and the services: listeners, TLS,
// limits on what clients may take (with package admission), checks of who they are (with
// package identity), and how they are sent away when the server stops.
package listen

import (
	"context"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/filewatch"
	"github.com/isobar-xds/isobar/internal/identity"
)

// Gate stands between the listeners and the services: it limits connections, streams,
// requests and memory, checks who clients are, and turns away whom it must.
type Gate struct {
	entrance

	opts Options
	cfg  *config.Fixed // as the server was started

	xds, admin *identity.Certificates // nil = plaintext
	token      *identity.Token        // nil = none is asked for

	messages *admission.Messages
	pool     *admission.Pool // connections that the limit of open files allows
	most     int             // connections of clients that the configuration and the limit of open files allow

	handshakes *prometheus.CounterVec // that failed
	ended      addressLog             // of handshakes that clients end
}

// Options of a Gate. All are required but for MessageMemory.
type Options struct {
	Settings *config.Fixed // as the server is started
	// Policy returns the rules in force on who may do what.
	Policy func() identity.Policy
	// IsProbe reports whether a connection to the admin listener begins like a probe, which
	// gets in however many connections there are.
	IsProbe func(head []byte) bool
	// KnownHost reports whether a name in a Host header is one of the admin interface.
	KnownHost func(host string) bool
	// MessageMemory bounds the memory of messages that are not whole or that no
	// handler has read, in bytes, over all connections; default 512 MiB.
	MessageMemory int64

	Trigger    *filewatch.Trigger // has certificates and tokens read again
	Identity   *identity.Metrics
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Open makes a gate, and reads certificates and tokens.
func Open(o Options) (*Gate, error) {
	if o.MessageMemory == 0 {
		o.MessageMemory = 512 << 20
	}
	g := &Gate{entrance: entrance{policy: o.Policy, log: o.Log}, opts: o, cfg: o.Settings}
	g.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "isobar_identity_refused_total", Help: "Streams and requests refused because of the client's identity, by role and reason.",
	}, []string{"role", "reason"})
	g.handshakes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "isobar_tls_handshake_failures_total", Help: "TLS handshakes on the xDS listener that failed, by reason.",
	}, []string{"reason"})
	o.Registerer.MustRegister(g.refused, g.handshakes)
	options := func(listener string) identity.Options {
		return identity.Options{Name: listener, Log: o.Log, Metrics: o.Identity, Trigger: o.Trigger}
	}
	var err error
	if f := g.cfg.XDS.TLS; f != nil {
		if g.xds, err = identity.OpenCertificates(*f, options("xds")); err != nil {
			return nil, err
		}
	}
	if f := g.cfg.Admin.TLS; f != nil {
		if g.admin, err = identity.OpenCertificates(*f, options("admin")); err != nil {
			return nil, err
		}
	}
	if path := g.cfg.Admin.TokenFile; path != "" {
		if g.token, err = identity.OpenToken(path, options("admin")); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// maxAdminConnections bounds those of operators; one address may have half.
const maxAdminConnections = 2_000

// Limit puts limits on the listeners and on what comes in by them.
func (g *Gate) Limit(ls *Listeners) {
	limits, now := g.cfg.XDS.Limits(), time.Now()
	g.rate = admission.NewRate(limits.StreamsPerSecond, limits.Burst, now)
	g.identities = admission.NewBudgets(limits.PeerStreams, peerOperations, limits.PeerLocalities)
	g.addresses = admission.NewBudgets(g.cfg.XDS.AddressStreams(), peerOperations, limits.PeerLocalities)
	g.requests = admission.NewBudgets(peerRequests, peerRequests, 0)
	g.admission = admission.NewMetrics(g.opts.Registerer)
	g.messages = admission.NewMessages(g.opts.MessageMemory, g.admission, g.messagesTookTooMuch)
	pace := admission.NewPace(limits.StreamsPerSecond, limits.Burst, now)
	g.messages.Pace(func(address string, streams int) time.Duration { return pace.Wait(address, streams, time.Now()) })
	connections := admission.NewRate(limits.StreamsPerSecond, limits.Burst, now)
	most, operators, pool := g.divideFiles(limits.MaxConnections)
	g.most = most
	for _, l := range []*net.Listener{&ls.XDS, &ls.XDS2017, &ls.REST} {
		if *l != nil {
			*l = g.ofBalancers(*l)
			*l = admission.Listen(*l, admission.Limits{Rate: connections, Most: most, Pool: pool, Metrics: g.admission})
		}
	}
	if ls.Admin != nil {
		ls.Admin = admission.Listen(ls.Admin, admission.Limits{
			Most: operators, Metrics: g.admission, What: admission.OfOperators, Yield: true, Urgent: g.opts.IsProbe,
		})
	}
}

// ofBalancers has the connections of balancers count as those of their clients.
func (g *Gate) ofBalancers(l net.Listener) net.Listener {
	if len(g.cfg.XDS.Balancers) == 0 {
		return l
	}
	return admission.ListenProxied(l, admission.Proxied{
		From: g.cfg.XDS.Balancers, Metrics: g.admission,
		Refused: func(balancer net.Addr, err error) {
			if skipped, ok := g.logs.Allow(time.Now()); ok {
				g.log.Warn("rejected a load balancer's connection: it must begin with a PROXY header",
					"balancer", balancer.String(), "error", err, "skipped_lines", skipped)
			}
		},
	})
}

// divideFiles returns how many connections each listener of clients and the
// listener of operators may have, and the pool that clients share, as far as the
// limit of open files allows.
func (g *Gate) divideFiles(configured int) (clients, operators int, pool *admission.Pool) {
	limit := admission.OpenFiles()
	if limit == 0 {
		limit = math.MaxInt32
	}
	files := admission.DivideFiles(limit, maxAdminConnections)
	g.pool = admission.NewPool(files.Clients)
	if files.Clients < configured {
		g.log.Warn("the limit of open files allows fewer connections than xds.admission.max_connections; raise it (LimitNOFILE in systemd, ulimit -n)",
			slog.Int("open_files", limit), slog.Int("connections", files.Clients), slog.Int("max_connections", configured), slog.Int("admin_connections", files.Admin))
	}
	return min(files.Clients, configured), files.Admin, g.pool
}

// Follow keeps certificates and tokens up to date until ctx ends.
func (g *Gate) Follow(ctx context.Context, start func(func() error)) {
	run := func(follow func(context.Context)) {
		start(func() error {
			follow(ctx)
			return nil
		})
	}
	if c := g.xds; c != nil {
		run(c.Follow)
	}
	if c := g.admin; c != nil {
		run(c.Follow)
	}
	if t := g.token; t != nil {
		run(t.Follow)
	}
}

// Shown is the certificate files of a listener.
type Shown struct {
	*identity.Certificates

	Listener string
}

// Certificates lists the certificate files of the listeners that have TLS.
func (g *Gate) Certificates() []Shown {
	var out []Shown
	for _, s := range []Shown{{g.xds, "xds"}, {g.admin, "admin"}} {
		if s.Certificates != nil {
			out = append(out, s)
		}
	}
	return out
}

// Token returns the token that operators need; nil = none.
func (g *Gate) Token() *identity.Token { return g.token }

// Use is how much of its limits a gate has given out.
type Use struct {
	Connections, MostConnections int   // of clients
	ByFiles                      bool  // the limit of open files allows fewer connections than the configuration
	Messages, MostMessages       int64 // bytes that clients sent and no handler has read
	Answers, MostAnswers         int64 // bytes of large answers that clients have yet to take
	// FullestAddress is the address nearest to its limit of connections to a listener.
	FullestAddress admission.Use
	// Peers has the fullest budgets of clients with a certificate and of those without.
	Peers []PeerUse
}

// PeerUse is what the clients use that have most of a budget.
type PeerUse struct {
	Streams, Localities admission.Use
}

// MessageMemory returns the bytes that clients sent and no handler has read.
func (g *Gate) MessageMemory() int64 { return g.messages.Used() }

// Use returns how much of its limits the gate has given out.
func (g *Gate) Use() Use {
	open, _ := g.pool.Open()
	u := Use{
		Connections: open, MostConnections: g.most, ByFiles: g.most < g.cfg.XDS.Limits().MaxConnections,
		Messages: g.messages.Used(), MostMessages: g.messages.Most(), FullestAddress: g.pool.Fullest(),
		Answers: g.answers.now(), MostAnswers: mostAnswers,
	}
	for _, b := range []*admission.Budgets{g.identities, g.addresses} {
		streams, localities := b.Fullest()
		u.Peers = append(u.Peers, PeerUse{streams, localities})
	}
	return u
}
