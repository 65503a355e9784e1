package admin

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/isobar-xds/isobar"
)

// getExplanation answers GET /v1/explain?service=NAME&from=REGION/ZONE. An
// empty from stands for clients that told no locality.
func (s *planAPI) getExplanation(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name := query.Get("service")
	if name == "" {
		fail(w, http.StatusBadRequest, Problem{
			Error: "no service given", Place: "query", Fix: "add ?service=NAME&from=REGION/ZONE; GET /v1/services lists the names",
		})
		return
	}
	from, err := isobar.ParseLocality(query.Get("from"))
	if err != nil {
		fail(w, http.StatusBadRequest, Problem{
			Error: err.Error(), Place: "from=" + query.Get("from"), Fix: "write region, region/zone or region/zone/sub_zone",
		})
		return
	}
	p, ok := s.plan(w)
	if !ok {
		return
	}
	if _, found := p.Service(name); !found {
		failUnknownService(w, name)
		return
	}
	explanation, err := s.opts.Planner.Explain(p, name, from)
	switch {
	case errors.Is(err, isobar.ErrNotFound):
		fail(w, http.StatusNotFound, problemOf(err))
	case err != nil:
		s.opts.Logger.Error("explain failed", "service", name, "from", from.String(), "error", err)
		fail(w, http.StatusInternalServerError, problemOf(err))
	default:
		if silent := SilentOf(s.opts.Fleet.Subscribers(), name); len(silent) > 0 {
			if svc, found := p.Service(name); found {
				explanation.Coverage = svc.CoverageBesides(silent)
			}
		}
		explanation.Warnings = append(explanation.Warnings, operatorsSay(s.overrides()[name])...)
		reply(w, http.StatusOK, explanation)
	}
}

// maxOverridesTold bounds how many overrides an explanation names.
const maxOverridesTold = 10

// operatorsSay tells which endpoints are what they are because an operator said
// so: it can't be seen in the configuration, and survives restarts.
func operatorsSay(overrides []isobar.HealthOverride) []string {
	var out []string
	for i, o := range overrides {
		if i == maxOverridesTold {
			return append(out, fmt.Sprintf("%d more endpoints have a health set by operators: GET /v1/health lists them", len(overrides)-i))
		}
		since := ""
		if !o.Since.IsZero() {
			since = " since " + o.Since.UTC().Format(time.RFC3339)
		}
		out = append(out, fmt.Sprintf("endpoint %s in %s is %s by operator%s: DELETE /v1/services/%s/endpoints/%s/health removes this",
			o.Address, o.Locality, o.Status, since, o.Service, o.Address))
	}
	return out
}
