package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// Regression holds the fractions of the requests that a step of mode auto must not
// increase.
type Regression struct {
	Errors float64 `json:"errors"` // that failed
	Over   float64 `json:"over"`   // that landed above the ceilings
}

// regressionGuard adds up to a Strain, in requests.
type regressionGuard struct {
	from, at     time.Time
	sent, errors float64
	// Above the ceilings: as was seen, as the plan's shares make of the demand that
	// was seen, and as the nearest localities alone would have had it.
	over, predicted, nearest float64
}

const (
	guardLeast    = 15 * time.Second // that is judged
	guardLength   = 30 * time.Second // that is added up
	guardRequests = 500.0            // that are judged

	// Errors may be twice what they were, and 2 points more, before it is the
	// step's fault; what lands above ceilings may be 5 points more than it was,
	// than predicted, and than without Isobar.
	guardFactor = 2.0
	guardErrors = 0.02
	guardOver   = 0.05
	guardSigmas = 4.0
)

// watchRegression adds the requests since the last tick, and returns what got worse by the
// last step of the mode; empty if nothing did, or the trial is over.
func (t *Rollout) watchRegression(of, prev *Service, now time.Time, network *isobar.Network) string {
	x := &t.open
	if x.from.IsZero() {
		x.from, x.at = now, now
		return ""
	}
	x.add(of, prev, min(now.Sub(x.at), scoreGap).Seconds(), network)
	x.at = now
	age := now.Sub(x.from)
	if age < guardLeast || x.sent < guardRequests {
		return ""
	}
	sum := *x
	seen := Regression{Errors: sum.errors / sum.sent, Over: sum.over / sum.sent}
	if age >= guardLength {
		t.newest, t.open = seen, regressionGuard{from: now, at: now}
	}
	if t.Trial == 0 {
		return ""
	}
	return sum.worse(seen, t.Before)
}

func (x *regressionGuard) worse(seen, before Regression) string {
	chance := guardSigmas * math.Sqrt(max(before.Errors, 1/x.sent)/x.sent)
	if most := max(guardFactor*before.Errors, before.Errors+guardErrors) + chance; seen.Errors > most {
		return fmt.Sprintf("%.1f%% of the requests fail, and %.1f%% did before", 100*seen.Errors, 100*before.Errors)
	}
	predicted, nearest := x.predicted/x.sent, x.nearest/x.sent
	if seen.Over > max(before.Over, predicted, nearest)+guardOver {
		return fmt.Sprintf("%.1f%% of the load is above the ceilings, %.1f%% was before and %.1f%% was predicted",
			100*seen.Over, 100*before.Over, 100*predicted)
	}
	return ""
}

// add adds what was seen for some seconds while prev was in force.
func (x *regressionGuard) add(of, prev *Service, seconds float64, network *isobar.Network) {
	predicted, nearest := make([]float64, len(prev.Sites)), make([]float64, len(prev.Sites))
	for i := range of.Load.Sources {
		s := &of.Load.Sources[i]
		x.sent += s.Raw * seconds
		x.errors += s.Errors * seconds
		r := prev.Result.Source(s.Source)
		if r == nil {
			continue
		}
		for l, share := range r.Shares {
			predicted[l] += share * s.Raw
		}
		best, at := math.Inf(1), -1
		for l := range prev.Sites {
			site := &prev.Sites[l]
			if ms, _ := network.Latency(s.Source, site.Group.Locality); ms < best && site.Usable() && of.Spec.Allows(s.Source, site.Group.Locality) {
				best, at = ms, l
			}
		}
		if at >= 0 {
			nearest[at] += s.Raw
		}
	}
	for i := range prev.Sites {
		if !prev.Site(i).hasCapacity() {
			continue
		}
		site := &prev.Sites[i]
		limit := site.Ceiling * max(1, site.Scale) * site.Capacity
		x.predicted += max(0, predicted[i]+site.Background-limit) * seconds
		x.nearest += max(0, nearest[i]+site.Background-limit) * seconds
		at := slices.IndexFunc(of.Load.Sites, func(y load.SiteLoad) bool { return y.Locality == site.Group.Locality })
		if at >= 0 {
			x.over += max(0, carried(site, &of.Load.Sites[at])-limit) * seconds
		}
	}
}

// carried is the load of a site: by what its endpoints report, else by what
// lands there.
func carried(site *assign.Site, l *load.SiteLoad) float64 {
	if l.Utilization > 0 {
		return l.Utilization * site.Capacity
	}
	return l.Issued + site.Background
}
