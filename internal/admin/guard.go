package admin

import (
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
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
			Error: "the Host header names an unknown host",
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
