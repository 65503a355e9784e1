package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// core is what the parts of the interface share: what they are made of, and how they
// answer.
type core struct {
	opts    Options
	metrics *metrics
	bodies  budget
	decoded turns  // what bodies cost while they are decoded and looked at
	answers budget // what large answers hold until clients have taken them
	panics  rpc.LogLimit
}

// plan returns the published plan, or answers that there is none.
func (s *core) plan(w http.ResponseWriter) (*plan.Plan, bool) {
	p := s.opts.Planner.Current()
	if p == nil {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, Problem{Error: "no plan has been published yet", Fix: "wait for /readyz to say ok"})
		return nil, false
	}
	return p, true
}

// unknown reports whether there is a plan, and no such service in it.
func (s *core) unknown(name string) bool {
	p := s.opts.Planner.Current()
	if p == nil {
		return false
	}
	_, found := p.Service(name)
	return !found
}

// audit returns the log for writes that took effect, with who made them.
func (s *core) audit(r *http.Request) *slog.Logger { return s.opts.Logger.With("peer", r.RemoteAddr) }

// ifMatch reads the precondition: 0 when there is none.
func (s *core) ifMatch(w http.ResponseWriter, r *http.Request, name string) (uint64, bool) {
	if r.Header.Get("If-None-Match") != "" {
		fail(w, http.StatusBadRequest, Problem{
			Error: "If-None-Match is not supported on writes", Place: "If-None-Match", Fix: "use If-Match with the revision that you read",
		})
		return 0, false
	}
	header := strings.TrimSpace(r.Header.Get("If-Match"))
	if header == "" {
		return 0, true
	}
	if header == "*" { // whatever stands now, as long as something does
		obj, err := s.opts.Objects.Get(name)
		if err != nil {
			s.failWrite(w, fmt.Errorf("%w: %w", isobar.ErrStale, err), name)
			return 0, false
		}
		return obj.Revision, true
	}
	match, err := strconv.ParseUint(strings.Trim(header, `"`), 10, 64)
	if err != nil || match == 0 {
		fail(w, http.StatusBadRequest, Problem{
			Error: "the revision is malformed", Place: "If-Match: " + header,
			Fix: `send the ETag of GET /v1/services/{name} as it came, for example If-Match: "7"`,
		})
		return 0, false
	}
	return match, true
}

// overrides returns what operators say, by service.
func (s *core) overrides() map[string][]isobar.HealthOverride {
	out := map[string][]isobar.HealthOverride{}
	for _, o := range s.opts.Objects.Overrides() {
		out[o.Service] = append(out[o.Service], o)
	}
	return out
}

func (s *core) stalled() string {
	beat := s.opts.Planner.Beat()
	if age := time.Since(beat); !beat.IsZero() && age > s.opts.Process.Stall() {
		return fmt.Sprintf("the control loop last advanced %s ago", age.Round(time.Second))
	}
	return ""
}
