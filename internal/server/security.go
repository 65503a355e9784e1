package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// security is what stands between the listeners and the services.
type security struct {
	xds, admin, replicas *identity.Certificates // nil = plaintext
	token                *identity.Token        // nil = none is asked for
	metrics              *identity.Metrics

	rate       *admission.Rate    // of new streams
	identities *admission.Budgets // of streams of who shows a certificate
	addresses  *admission.Budgets // of all others
	requests   *admission.Budgets // of single requests under way
	messages   *admission.Messages
	admission  *admission.Metrics
	pool       *admission.Pool // connections that the limit of open files allows
	most       int             // connections of clients that the configuration allows, and the limit of open files

	refused    *prometheus.CounterVec // by identity
	handshakes *prometheus.CounterVec // that failed
	logs       rpc.LogLimit
	ended      addressLog // of handshakes that clients end
	recent     recentSubscriptions
	refusals   refusals // of checkers
}

// maxAdminConnections bounds those of operators; one address may have half.
const maxAdminConnections = 2_000

// openSecurity reads certificates and tokens.
func (s *Server) openSecurity() error {
	sec := &s.security
	sec.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "isobar_identity_refused_total", Help: "Streams and requests refused because of the client's identity, by role and reason.",
	}, []string{"role", "reason"})
	sec.handshakes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "isobar_tls_handshake_failures_total", Help: "TLS handshakes on the xDS listener that failed, by reason.",
	}, []string{"reason"})
	s.metrics.MustRegister(sec.refused, sec.handshakes)
	sec.metrics = identity.NewMetrics(s.metrics)
	options := func(listener string) identity.Options {
		return identity.Options{Name: listener, Log: s.log, Metrics: sec.metrics, Trigger: &s.trigger}
	}
	var err error
	if f := s.cfg.XDS.TLS; f != nil {
		if sec.xds, err = identity.OpenCertificates(*f, options("xds")); err != nil {
			return err
		}
	}
	if f := s.cfg.Admin.TLS; f != nil {
		if sec.admin, err = identity.OpenCertificates(*f, options("admin")); err != nil {
			return err
		}
	}
	if path := s.cfg.Admin.TokenFile; path != "" {
		if sec.token, err = identity.OpenToken(path, options("admin")); err != nil {
			return err
		}
	}
	return nil
}

// limitListeners puts limits on the listeners and on what comes in by them.
func (s *Server) limitListeners() {
	sec, limits, now := &s.security, s.cfg.XDS.Limits(), time.Now()
	sec.rate = admission.NewRate(limits.StreamsPerSecond, limits.Burst, now)
	sec.identities = admission.NewBudgets(limits.PeerStreams, limits.PeerLocalities)
	sec.addresses = admission.NewBudgets(s.cfg.XDS.AddressStreams(), limits.PeerLocalities)
	sec.requests = admission.NewBudgets(peerRequests, 0)
	sec.admission = admission.NewMetrics(s.metrics)
	sec.messages = admission.NewMessages(s.opts.MessageMemory, sec.admission, s.messagesTookTooMuch)
	pace := admission.NewPace(limits.StreamsPerSecond, limits.Burst, now)
	sec.messages.Pace(func(address string, streams int) time.Duration { return pace.Wait(address, streams, time.Now()) })
	connections := admission.NewRate(limits.StreamsPerSecond, limits.Burst, now)
	most, operators, pool := s.divideFiles(limits.MaxConnections)
	sec.most = most
	for _, l := range []*net.Listener{&s.listeners.XDS, &s.listeners.XDS2017, &s.listeners.REST} {
		if *l != nil {
			*l = s.ofBalancers(*l)
			*l = admission.Listen(*l, admission.Limits{Rate: connections, Most: most, Pool: pool, Metrics: sec.admission})
		}
	}
	if s.listeners.Admin != nil {
		s.listeners.Admin = admission.Listen(s.listeners.Admin, admission.Limits{
			Most: operators, Metrics: sec.admission, What: admission.OfOperators, Yield: true, Urgent: admin.IsProbe,
		})
	}
}

// ofBalancers has the connections of balancers count as those of their clients.
func (s *Server) ofBalancers(l net.Listener) net.Listener {
	if len(s.cfg.XDS.Balancers) == 0 {
		return l
	}
	return admission.ListenProxied(l, admission.Proxied{
		From: s.cfg.XDS.Balancers, Metrics: s.security.admission,
		Refused: func(balancer net.Addr, err error) {
			if skipped, ok := s.security.logs.Allow(time.Now()); ok {
				s.log.Warn("refused a connection of a balancer: it has to begin with a PROXY header", "balancer", balancer.String(), "error", err, "skipped_lines", skipped)
			}
		},
	})
}

// divideFiles returns how many connections each listener of clients and the
// listener of operators may have, and the pool that clients share, as far as the
// limit of open files allows.
func (s *Server) divideFiles(configured int) (clients, operators int, pool *admission.Pool) {
	limit := admission.OpenFiles()
	if limit == 0 {
		limit = math.MaxInt32
	}
	files := admission.DivideFiles(limit, maxAdminConnections)
	s.security.pool = admission.NewPool(files.Clients)
	if files.Clients < configured {
		s.log.Warn("the limit of open files allows fewer connections than xds.admission.max_connections; raise it (LimitNOFILE in systemd, ulimit -n)",
			slog.Int("open_files", limit), slog.Int("connections", files.Clients), slog.Int("max_connections", configured), slog.Int("admin_connections", files.Admin))
	}
	return min(files.Clients, configured), files.Admin, s.security.pool
}

// followFiles keeps certificates and tokens up to date until ctx ends.
func (s *Server) followFiles(ctx context.Context, start func(func() error)) {
	run := func(follow func(context.Context)) {
		start(func() error {
			follow(ctx)
			return nil
		})
	}
	if c := s.security.xds; c != nil {
		run(c.Follow)
	}
	if c := s.security.admin; c != nil {
		run(c.Follow)
	}
	if t := s.security.token; t != nil {
		run(t.Follow)
	}
}

// adminListener is that of operators, over TLS where it is configured.
func (s *Server) adminListener() net.Listener {
	if c := s.security.admin; c != nil {
		return tls.NewListener(s.listeners.Admin, c.Config("http/1.1"))
	}
	return s.listeners.Admin
}

// restListener is that of clients that poll, over TLS where xds has it.
func (s *Server) restListener() net.Listener {
	if c := s.security.xds; c != nil {
		return tls.NewListener(s.listeners.REST, c.Config("http/1.1"))
	}
	return s.listeners.REST
}

// tokenCheck tells a right token from a wrong one; nil where none is asked for.
func (s *Server) tokenCheck() func(string) bool {
	if t := s.security.token; t != nil {
		return t.Valid
	}
	return nil
}

// mayWrite tells whether an operator may change something: where both listeners
// ask for certificates, one who shows a certificate has to have the role for it, or
// every proxy of the fleet could pause it with its own.
func (s *Server) mayWrite(r *http.Request) error {
	p := identity.PeerOfState(r.TLS)
	if p == nil {
		return nil // the admin listener asks for none
	}
	if err := s.policy().CheckRole(p, identity.RoleAdmin); err != nil {
		return errors.New(status.Convert(s.refuseIdentity(err, identity.RoleAdmin, httpAddress(r), "")).Message())
	}
	return nil
}

// isOperator reports whether a request shows a certificate with the role of operators.
func (s *Server) isOperator(r *http.Request) bool {
	p := identity.PeerOfState(r.TLS)
	return p != nil && s.policy().CheckRole(p, identity.RoleAdmin) == nil
}

// policy gives the rules in force. They follow the configuration file; whether
// clients show certificates is decided at the start.
func (s *Server) policy() identity.Policy {
	if !asksCertificates(&s.cfg.XDS) {
		return s.cfg.XDS.Identities
	}
	return s.current.Load().XDS.Identities
}
