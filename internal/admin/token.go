package admin

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// tokens lets requests through that show the bearer token, where one is asked
// for: by everything but GET and HEAD, or by all requests but the probes.
func (s *access) tokens(h http.Handler) http.Handler {
	if s.opts.Token == nil {
		return h
	}
	refuse := s.metrics.wrap("no token", func(w http.ResponseWriter, r *http.Request) {
		p := Problem{
			Error: "this request needs the bearer token of the admin interface",
			Fix:   "send `Authorization: Bearer TOKEN`, or give the command --token-file FILE",
		}
		challenge := `Bearer realm="isobar"`
		if r.Header.Get("Authorization") != "" {
			p.Error = "the bearer token is not the one of admin.token_file"
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
		fail(w, http.StatusUnauthorized, p)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.needsToken(r) && !s.showsToken(r) {
			refuse.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// writers lets requests that may change something through only from who may.
func (s *access) writers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !reads(r) && !rpc.IsCheckerPath(r.URL.Path) {
			if err := s.opts.Identities.MayWrite(r); err != nil {
				s.metrics.wrap("not an operator", func(w http.ResponseWriter, _ *http.Request) {
					fail(w, http.StatusForbidden, Problem{Error: err.Error(), Fix: "show a certificate to which xds.identities give the role admin"})
				}).ServeHTTP(w, r)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// costly lets requests that take much work, or tell what is in memory, through only from this
// machine, with the token, or from who has proved to be an operator.
func (s *access) costly(h http.Handler) http.Handler {
	refuse := s.metrics.wrap("no token", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusForbidden, Problem{
			Error: "from other machines this needs the bearer token of the admin interface, or a certificate with the role admin",
			Fix: "set `admin: {token_file: FILE}` and give the command --token-file FILE, " +
				"set `admin: {tls: {client_ca: FILE}}` and show a certificate, or ask on the machine of the server",
		})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isCostly(r) || fromHere(r) || s.opts.Token != nil && s.showsToken(r) || s.opts.Identities.IsOperator(r) {
			h.ServeHTTP(w, r)
			return
		}
		refuse.ServeHTTP(w, r)
	})
}

func isCostly(r *http.Request) bool {
	switch path := r.URL.Path; path {
	case "/v1/plan", "/v1/whatif", "/v1/record":
		return !reads(r)
	default:
		return strings.HasPrefix(path, "/debug/pprof/")
	}
}

// fromHere reports whether a request comes from the machine that it is answered on, as those
// over connections without an IP address do.
func fromHere(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err != nil || from.Addr().Unmap().IsLoopback()
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

func (s *access) needsToken(r *http.Request) bool {
	switch {
	case !reads(r):
		return true
	case r.URL.Path == "/livez", r.URL.Path == "/readyz", s.isConsole(r):
		return false
	default:
		return s.opts.TokenForAll
	}
}

func (s *access) showsToken(r *http.Request) bool {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return ok && strings.EqualFold(scheme, "Bearer") && s.opts.Token(strings.TrimSpace(token))
}

func (s *access) getAccess(w http.ResponseWriter, r *http.Request) {
	out := Access{Writable: s.opts.Writable, Token: "none"}
	if s.opts.Token != nil {
		out.Token, out.Shown = "writes", s.showsToken(r)
		if s.opts.TokenForAll {
			out.Token = "all"
		}
	}
	reply(w, http.StatusOK, out)
}

// Access is the body of GET /v1/access: which requests the interface takes
// from this caller. The refusal of a write names a missing role.
type Access struct {
	Writable bool   `json:"writable"`
	Token    string `json:"token"` // which requests need the bearer token: "none", "writes" or "all"
	Shown    bool   `json:"shown"` // this request showed it
}
