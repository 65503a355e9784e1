package admin

import (
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// writeFunc answers a write; body is nil where the method has none.
type writeFunc func(w http.ResponseWriter, r *http.Request, body []byte)

// access decides which requests the interface takes: from whom, by which name, and how
// many at a time.
type access struct {
	*core

	writes chan struct{} // a token for each write under way
}

// guard lets a write through when writing is allowed, the request does not
// come from a foreign web page, and not too many writes are in progress. It reads
// the body, of at most limit bytes (0 = the method has none), before the write
// counts as under way: who sends slowly holds up nobody else.
func (s *access) guard(limit int64, h writeFunc) http.HandlerFunc {
	foreign := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.opts.Writable {
			fail(w, http.StatusForbidden, Problem{
				Error: "the admin interface is read-only",
				Fix:   "set `admin: {writable: true}` in the configuration file, and restart the server",
			})
			return
		}
		if err := foreign.Check(r); err != nil {
			fail(w, http.StatusForbidden, Problem{
				Error: "the request comes from another origin: " + err.Error(),
				Place: r.Header.Get("Origin"),
				Fix:   "write from the same origin or without a browser",
			})
			return
		}
		var body []byte
		if limit > 0 {
			if !readableType(w, r) {
				return
			}
			var release func()
			var ok bool
			if body, release, ok = s.readBody(w, r, limit); !ok {
				return
			}
			defer release()
			done, ok := s.decoded.await(r.Context(), len(body))
			if !ok {
				failBusy(w)
				return
			}
			defer done()
		}
		select {
		case s.writes <- struct{}{}:
			defer func() { <-s.writes }()
		default:
			failBusy(w)
			return
		}
		h(w, r, body)
	}
}

func failBusy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	fail(w, http.StatusServiceUnavailable, Problem{
		Error: "too many writes are in progress",
		Fix:   "try again in a second; use PUT /v1/services to write many services at once",
	})
}

// knownHosts lets requests through that address us by a name of ours.
func (s *access) knownHosts(h http.Handler) http.Handler {
	refuse := s.metrics.wrap("unknown host", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusForbidden, Problem{
			Error: "the Host header names a host that is not in admin.hosts",
			Place: r.Host,
			Fix:   "address the interface by its IP address or as localhost, or list the name in the configuration: `admin: {hosts: [...]}`",
		})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if KnownHost(r.Host, s.opts.Hosts) {
			h.ServeHTTP(w, r)
			return
		}
		refuse.ServeHTTP(w, r)
	})
}

// KnownHost reports whether a Host header can be meant for a server that goes by
// some names, beside its IP addresses and localhost. A web page that rebinds its
// own name to our address still sends that name. Only programs leave the name
// out (HTTP/1.0).
func KnownHost(hostport string, names []string) bool {
	if hostport == "" {
		return true
	}
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return slices.ContainsFunc(names, func(known string) bool { return strings.EqualFold(known, host) })
}

const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

// readableType refuses bodies that say they are something else than JSON or
// YAML. A client that did not say, or said what curl says by default, is
// understood too.
func readableType(w http.ResponseWriter, r *http.Request) bool {
	header := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(header)
	switch {
	case header == "":
		return true
	case err != nil:
	case strings.HasSuffix(media, "+json") || slices.Contains([]string{
		mediaJSON, mediaYAML, "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain", "application/x-www-form-urlencoded",
	}, media):
		return true
	}
	fail(w, http.StatusUnsupportedMediaType, Problem{
		Error: "unknown content type",
		Place: "Content-Type: " + header,
		Fix:   "send " + mediaJSON + " or " + mediaYAML,
	})
	return false
}

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

// Access is the body of GET /v1/access: the requests that the interface accepts from this caller.
// The refusal of a write names a missing role.
type Access struct {
	Writable bool   `json:"writable"`
	Token    string `json:"token"` // which requests need the bearer token: "none", "writes" or "all"
	Shown    bool   `json:"shown"` // this request showed it
}

// survive turns a panic in a handler into the answer to that one request, and
// reports it: net/http would close the connection and say little.
func (s *access) survive(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &begun{ResponseWriter: w}
		defer func() {
			x := recover()
			switch x {
			case nil:
				return
			case http.ErrAbortHandler: // on purpose
				panic(x)
			}
			if skipped, ok := s.panics.Allow(time.Now()); ok {
				s.opts.Logger.Error("internal error in the admin interface; please report it", "request", r.Method+" "+r.URL.Path,
					"panic", fmt.Sprint(x), "stack", string(debug.Stack()), "skipped_lines", skipped)
			}
			if out.header {
				panic(http.ErrAbortHandler) // the client must not take half an answer for a whole one
			}
			clear(w.Header())
			fail(w, http.StatusInternalServerError, Problem{Error: "internal error in the admin interface", Fix: "report it, with the stack from the server's log"})
		}()
		h.ServeHTTP(out, r)
	})
}

// begun remembers whether an answer has begun.
type begun struct {
	http.ResponseWriter

	header bool
}

// WriteHeader implements http.ResponseWriter.
func (b *begun) WriteHeader(code int) {
	b.header = true
	b.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (b *begun) Write(data []byte) (int, error) {
	b.header = true
	return b.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController reach the connection.
func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// uiPath is where the console is served.
const uiPath = "/ui/"

// console serves the web console. Its files tell nothing of the fleet, so they
// need no token: a browser that opens a page can't show one. What the page then
// reads of the API does.
func (s *access) console(mux *http.ServeMux) {
	if s.opts.Console == nil {
		return
	}
	page := s.metrics.wrap("GET "+uiPath, http.StripPrefix(strings.TrimSuffix(uiPath, "/"), s.opts.Console).ServeHTTP)
	mux.Handle("GET "+uiPath, ownOrigin(page))
	// Relative, since a proxy may serve all of this beneath a path of its own.
	for _, path := range []string{"/{$}", "/ui"} {
		mux.Handle("GET "+path, s.metrics.wrap("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", strings.TrimPrefix(uiPath, "/"))
			w.WriteHeader(http.StatusFound)
		}))
	}
}

// beneath serves everything beneath a base path, too, for proxies that pass it on.
func (s *access) beneath(h http.Handler) http.Handler {
	base := s.opts.BasePath
	if base == "" {
		return h
	}
	stripped := http.StripPrefix(base, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, base+"/"):
			stripped.ServeHTTP(w, r)
		case r.URL.Path == base:
			w.Header().Set("Location", base+uiPath)
			w.WriteHeader(http.StatusFound)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// ownOrigin refuses what another page asks for by script or embeds. To follow a
// link to the console is no such thing.
func ownOrigin(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if foreignPage(r) {
			failForeign(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func failForeign(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusForbidden, Problem{
		Error: "the request comes from a web page of another origin",
		Place: r.Header.Get("Origin"),
		Fix:   "open the console itself, or ask without a browser",
	})
}

// foreignPage reports whether a page of another origin made a request. Browsers say
// so by Sec-Fetch-Site, but only to addresses that they trust (HTTPS, localhost); a
// proxy between may have changed Host, so Origin decides only without it.
func foreignPage(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" {
			return false
		}
		u, err := url.Parse(origin)
		return err != nil || !strings.EqualFold(u.Host, r.Host)
	default:
		return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
	}
}

// isConsole reports whether a request is for a file of the console.
func (s *access) isConsole(r *http.Request) bool {
	return s.opts.Console != nil && reads(r) &&
		(r.URL.Path == "/" || r.URL.Path == "/ui" || strings.HasPrefix(r.URL.Path, uiPath))
}
