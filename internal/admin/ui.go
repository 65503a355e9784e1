package admin

import (
	"net/http"
	"net/url"
	"strings"
)

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
