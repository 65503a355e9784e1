package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// enterHTTP lets the requests of clients that poll in as streams are let in:
// they pay the same rate, count in the same books, and show who they are. A web
// page that an operator looks at is no such client.
func (s *Server) enterHTTP(h http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(raw http.ResponseWriter, r *http.Request) {
		w := s.newPollWriter(raw, httpAddress(r))
		if err := foreign.Check(r); err != nil {
			http.Error(w, "the request comes from a web page of another origin", http.StatusForbidden)
			return
		}
		if s.fromReboundPage(r) {
			http.Error(w, "the request comes from a web page, and its Host header names an unknown host", http.StatusForbidden)
			return
		}
		v := &visitor{peer: identity.PeerOfState(r.TLS), address: w.address}
		if err := s.knownByTLS(v); err != nil {
			http.Error(w, status.Convert(err).Message(), http.StatusUnauthorized)
			return
		}
		var err error
		if refused := s.security.rate.Take(v.address, time.Now()); refused != "" {
			err = s.turnAway(refused, v.address, "")
		} else {
			err = s.open(v, kindOfPoll(r))
		}
		if err != nil {
			refusePoll(w, err)
			return
		}
		defer v.stream.Close()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitorKey{}, v)))
	})
}

// kindOfPoll tells what a client polls for, by the path.
func kindOfPoll(r *http.Request) admission.Kind {
	if rpc.IsCheckerPath(r.URL.Path) {
		return admission.HealthChecks
	}
	return admission.Discovery
}

// refusePoll answers that there is no room, and when to come back.
func refusePoll(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", rpc.RetryAfter())
	http.Error(w, status.Convert(err).Message(), http.StatusTooManyRequests)
}

// knownByTLS refuses who shows no certificate where clients of xDS have to: the
// admin interface, where checkers poll too, may ask for none, and must not be a
// way around it.
func (s *Server) knownByTLS(v *visitor) error {
	if !asksCertificates(&s.cfg.XDS) || v.peer != nil {
		return nil
	}
	return s.refuseIdentity(identity.ErrAnonymous, identity.RoleChecker, v.address, "")
}

// fromReboundPage tells whether a request comes from a web page that has our
// address by a name of its own, so that the browser takes us for the page's
// origin. The name alone says nothing here: Envoy writes the name of its cluster
// into the Host header of a poll. But all polls are POSTs, and of those every
// browser tells the origin.
func (s *Server) fromReboundPage(r *http.Request) bool {
	page := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
	return page && !admin.KnownHost(r.Host, s.cfg.Admin.Hosts)
}

// httpAddress is what the peer of a request counts under.
func httpAddress(r *http.Request) string {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return admission.Address(nil)
	}
	return admission.Address(net.TCPAddrFromAddrPort(ap))
}
