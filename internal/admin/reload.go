package admin

import (
	"errors"
	"net/http"
	"time"

	"github.com/isobar-xds/isobar"
)

// HeldConfiguration is what of the configuration file is not in force, because
// clients need what it removes.
type HeldConfiguration struct {
	Digest   string        `json:"digest"`            // of the file, by which an operator confirms it
	Removes  string        `json:"removes,omitempty"` // how much the file removes; it is not in force at all then
	Services []HeldService `json:"services"`          // that the file in force no longer has, sorted by name
}

// HeldService is served as before, although the configuration no longer has it.
type HeldService struct {
	Service string    `json:"service"`
	Rate    float64   `json:"rate"`             // requests/s that clients send
	Silent  int       `json:"silent,omitempty"` // clients that subscribe to it and report no load
	Since   time.Time `json:"since"`

	Confirm bool `json:"confirm,omitempty"` // it is served until an operator confirms the removal, also without load
}

// Reloaded answers POST /v1/reload.
type Reloaded struct {
	Held *HeldConfiguration `json:"held,omitempty"` // what still is
}

// postReload answers POST /v1/reload. The order may confirm a digest.
func (s *loopAPI) postReload(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := order(w, r, body)
	if !ok {
		return
	}
	held, err := s.opts.Configuration.Reload(o.Confirm)
	switch {
	case errors.Is(err, isobar.ErrStale):
		fail(w, http.StatusConflict, Problem{Error: err.Error(), Place: "confirm", Fix: "GET /v1/status (`isobar status`) shows held removals, with the digest"})
	case errors.Is(err, isobar.ErrInvalid):
		fail(w, http.StatusBadRequest, Problem{Error: err.Error(), Fix: "fix the file; the previous configuration stays in force"})
	case err != nil && held == nil:
		fail(w, http.StatusServiceUnavailable, Problem{Error: err.Error()})
	default:
		s.audit(r).Info("configuration reloaded by operator", "confirmed", o.Confirm, "who", o.Who, "reason", o.Reason)
		reply(w, http.StatusOK, Reloaded{Held: held})
	}
}
