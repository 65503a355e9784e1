package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Limits of a connection over which a client polls.
const (
	restHeaderWait = 10 * time.Second
	restReadWait   = 30 * time.Second
	restIdle       = 5 * time.Minute
)

// ServePolls serves clients that poll over HTTP until ctx ends.
func (g *Gate) ServePolls(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{
		Handler: g.guardHTTP(g.HTTP(h)), ReadHeaderTimeout: restHeaderWait, ReadTimeout: restReadWait, IdleTimeout: restIdle,
		MaxHeaderBytes: maxHeaderList, ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(overTLS(l, g.xds)) }()
	select {
	case err := <-served:
		return fmt.Errorf("rest listener: %w", err)
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	if err := srv.Shutdown(patience); err != nil {
		g.log.Warn("some REST requests did not end in time", "error", errors.Join(err, srv.Close()))
	}
	if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
		g.log.Warn("the REST listener ended with an error", "error", err)
	}
	return nil
}

// guardHTTP turns a panic in a handler into the answer to that one request.
func (g *Gate) guardHTTP(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		defer func() {
			if err != nil { // of no effect where an answer has begun
				http.Error(w, status.Convert(err).Message(), http.StatusInternalServerError)
			}
		}()
		defer g.panics.Recovered(&err, g.log, "method", r.URL.Path)
		h.ServeHTTP(w, r)
	})
}

// HTTP lets the requests of clients that poll in as streams are let in:
// they pay the same rate, count in the same books, and show who they are. A web
// page that an operator looks at is no such client.
func (g *Gate) HTTP(h http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(raw http.ResponseWriter, r *http.Request) {
		w := g.newPollWriter(raw, httpAddress(r))
		if err := foreign.Check(r); err != nil {
			http.Error(w, "the request comes from a web page of another origin", http.StatusForbidden)
			return
		}
		if g.fromReboundPage(r) {
			http.Error(w, "the request comes from a web page, and its Host header names a host that is not in admin.hosts", http.StatusForbidden)
			return
		}
		v := &visitor{peer: identity.PeerOfState(r.TLS), address: w.address}
		if err := g.knownByTLS(v); err != nil {
			http.Error(w, status.Convert(err).Message(), http.StatusUnauthorized)
			return
		}
		var err error
		if refused := g.rate.Take(v.address, time.Now()); refused != "" {
			err = g.turnAway(refused, v.address, "")
		} else {
			err = g.open(v, kindOfPoll(r))
		}
		if err != nil {
			refusePoll(w, err)
			return
		}
		defer v.stream.Close()
		ctx, done := g.counted(raw, r)
		defer done()
		h.ServeHTTP(w, r.WithContext(context.WithValue(ctx, visitorKey{}, v)))
	})
}

// counted counts what is kept of a request. Where messages of clients take too much, its
// connection may be closed.
func (g *Gate) counted(w http.ResponseWriter, r *http.Request) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(r.Context())
	control := http.NewResponseController(w)
	body := g.messages.Body(tcpAddress(r), func() {
		cancel()
		// Nothing is read or written any more: the server closes the connection.
		_ = control.SetReadDeadline(time.Unix(1, 0))
		_ = control.SetWriteDeadline(time.Unix(1, 0))
	})
	return rpc.WithUnread(ctx, body), func() {
		body.Close()
		cancel()
	}
}

// kindOfPoll tells what a client polls for, by the path.
func kindOfPoll(r *http.Request) admission.Kind {
	if rpc.IsCheckerPath(r.URL.Path) {
		return admission.HealthChecks
	}
	return admission.Discovery
}

// refusePoll answers that a limit is reached, and when to come back.
func refusePoll(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", rpc.RetryAfter())
	http.Error(w, status.Convert(err).Message(), http.StatusTooManyRequests)
}

// knownByTLS refuses who shows no certificate where clients of xDS have to: the
// admin interface, where checkers poll too, may ask for none, and must not be a
// way around it.
func (g *Gate) knownByTLS(v *visitor) error {
	if !g.cfg.XDS.AsksCertificates() || v.peer != nil {
		return nil
	}
	return g.refuseIdentity(identity.ErrAnonymous, identity.RoleChecker, v.address, "")
}

// fromReboundPage reports whether a request comes from a web page that has our
// address by a name of its own, so that the browser takes us for the page's
// origin. The name alone says nothing here: Envoy writes the name of its cluster
// into the Host header of a poll. But all polls are POSTs, and of those every
// browser tells the origin.
func (g *Gate) fromReboundPage(r *http.Request) bool {
	page := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
	return page && !g.opts.KnownHost(r.Host)
}

// httpAddress is what the peer of a request counts under.
func httpAddress(r *http.Request) string { return admission.Address(tcpAddress(r)) }

// tcpAddress is that of the peer of a request; another where it does not come by TCP.
func tcpAddress(r *http.Request) net.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return &net.UnixAddr{Name: r.RemoteAddr, Net: "unix"}
	}
	return net.TCPAddrFromAddrPort(ap)
}

// AdminListener returns the listener of operators, over TLS where it is configured.
func (g *Gate) AdminListener(l net.Listener) net.Listener { return overTLS(l, g.admin) }

func overTLS(l net.Listener, c *identity.Certificates) net.Listener {
	if c == nil {
		return l
	}
	return tls.NewListener(l, c.Config("http/1.1"))
}

// TokenCheck tells a right token from a wrong one; nil where none is asked for.
func (g *Gate) TokenCheck() func(string) bool {
	if t := g.token; t != nil {
		return t.Valid
	}
	return nil
}

// MayWrite reports whether an operator may change something: where both listeners
// ask for certificates, one who shows a certificate has to have the role for it, or
// every proxy of the fleet could pause it with its own.
func (g *Gate) MayWrite(r *http.Request) error {
	p := identity.PeerOfState(r.TLS)
	if p == nil {
		return nil // the admin listener asks for none
	}
	if err := g.opts.Policy().CheckRole(p, identity.RoleAdmin); err != nil {
		return errors.New(status.Convert(g.refuseIdentity(err, identity.RoleAdmin, httpAddress(r), "")).Message())
	}
	return nil
}

// IsOperator reports whether a request shows a certificate with the role of operators.
func (g *Gate) IsOperator(r *http.Request) bool {
	p := identity.PeerOfState(r.TLS)
	return p != nil && g.opts.Policy().CheckRole(p, identity.RoleAdmin) == nil
}
