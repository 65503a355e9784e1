package admin

import (
	"bytes"
	"net/http"
)

// Health is the body of /livez and /readyz.
type Health struct {
	Status  string `json:"status"` // "ok" or what is wrong
	Version string `json:"version,omitempty"`
}

// IsProbe reports whether what a client has sent is the whole head of a request of
// /livez or /readyz.
func IsProbe(head []byte) bool {
	rest, ok := bytes.CutPrefix(head, []byte("GET /livez"))
	if !ok {
		rest, ok = bytes.CutPrefix(head, []byte("GET /readyz"))
	}
	return ok && len(rest) > 0 && (rest[0] == ' ' || rest[0] == '?') && bytes.Contains(rest, []byte("\r\n\r\n"))
}

// processAPI answers what is asked of any process, and records what is decided.
type processAPI struct{ *core }

// livez fails when the control loop no longer advances: a restart is the
// remedy then. A loop that has not begun is alive; see readyz.
func (s *processAPI) livez(w http.ResponseWriter, _ *http.Request) {
	if wrong := s.stalled(); wrong != "" {
		reply(w, http.StatusServiceUnavailable, Health{Status: wrong})
		return
	}
	reply(w, http.StatusOK, Health{Status: "ok"})
}

// readyz fails while there is no plan to serve, and when the server is about to
// stop.
func (s *processAPI) readyz(w http.ResponseWriter, _ *http.Request) {
	p := s.opts.Planner.Current()
	switch wrong := s.stalled(); {
	case p == nil:
		reply(w, http.StatusServiceUnavailable, Health{Status: "no plan has been published yet"})
	case wrong != "":
		reply(w, http.StatusServiceUnavailable, Health{Status: wrong, Version: p.VersionString()})
	case s.opts.Process.Stopping():
		reply(w, http.StatusServiceUnavailable, Health{Status: "stopping", Version: p.VersionString()})
	default:
		reply(w, http.StatusOK, Health{Status: "ok", Version: p.VersionString()})
	}
}
