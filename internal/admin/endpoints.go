package admin

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// settable are the states that an operator may set: what probes find is not
// for people to claim.
var settable = []isobar.HealthStatus{isobar.Healthy, isobar.Unhealthy, isobar.Draining}

// putHealth overrides the health of one endpoint, also of services that belong
// to the file: the file says how an endpoint starts, the operator how it is.
func (s *Server) putHealth(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r, maxHealthBytes)
	if !ok {
		return
	}
	status, ok := parseHealth(body)
	if !ok {
		fail(w, http.StatusBadRequest, Problem{
			Error: "unknown health", Place: "body: " + strings.TrimSpace(string(body)),
			Fix: `send healthy, unhealthy or draining, as plain text, a JSON string or {"health": "draining"}`,
		})
		return
	}
	s.setHealth(w, r, status)
}

// deleteHealth takes the operator's word back: the endpoint is again what the
// configuration says.
func (s *Server) deleteHealth(w http.ResponseWriter, r *http.Request) {
	s.setHealth(w, r, isobar.Unknown)
}

func (s *Server) setHealth(w http.ResponseWriter, r *http.Request, status isobar.HealthStatus) {
	name, address := r.PathValue("name"), r.PathValue("address")
	revision, err := s.opts.Objects.SetHealth(name, address, status)
	if err != nil {
		s.failWrite(w, err, name)
		return
	}
	s.opts.Logger.Info("health set by operator", "service", name, "address", address, "health", status.String())
	s.published(w, r, revision, Published{Service: name})
}

// parseHealth reads a state from plain text, a JSON string or an object.
func parseHealth(body []byte) (isobar.HealthStatus, bool) {
	text := strings.TrimSpace(string(body))
	var object struct {
		Health string `json:"health"`
	}
	var quoted string
	switch {
	case json.Unmarshal(body, &object) == nil:
		text = object.Health
	case json.Unmarshal(body, &quoted) == nil:
		text = quoted
	default:
		text = strings.TrimSpace(strings.TrimPrefix(text, "health:")) // the same as YAML
	}
	status, err := isobar.ParseHealth(text)
	return status, err == nil && slices.Contains(settable, status)
}
