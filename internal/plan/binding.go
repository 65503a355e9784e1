package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

const (
	// shownShare is the least share that a text names.
	shownShare = 0.005
	// raisedSlack is the factor up to which a raised ceiling is a rounding error.
	raisedSlack = 1.001
)

// binding names what keeps the source from its nearest locality: the most
// deliberate cause first, because it would bind whatever the others do.
func (e *explainer) binding(rows []LocalityExplained, reasons []assign.Reason) BindingExplained {
	if len(rows) == 0 {
		return BindingExplained{Kind: BindingHealth, Text: "the service has no localities"}
	}
	if e.s.Hold != "" {
		return BindingExplained{Kind: BindingHold, Text: e.s.Hold}
	}
	if r, ok := findReason(reasons, assign.ReasonHold, assign.ReasonFallback); ok {
		return BindingExplained{Kind: BindingHold, Text: r.Text}
	}
	slow, isSlow := findReason(reasons, assign.ReasonSlow)
	if isSlow && e.s.decays() {
		return BindingExplained{Kind: BindingInput, Text: slow.Text}
	}
	if r, ok := findReason(reasons, assign.ReasonHeld); ok {
		return BindingExplained{Kind: BindingReach, Locality: place(r.Locality), Text: fmt.Sprintf("%s: %s", r.Locality, r.Text)}
	}
	if r, ok := findReason(reasons, assign.ReasonPaced); ok {
		if isSlow {
			r.Text += "; " + slow.Text
		}
		return BindingExplained{Kind: BindingPacing, Locality: place(r.Locality), Text: r.Text}
	}
	if e.s.Mode() == isobar.ModeObserve {
		return BindingExplained{Kind: BindingMode, Text: "mode observe: the nearest healthy localities are served, the decision is only shown"}
	}
	if r, ok := findReason(reasons, assign.ReasonBounded); ok {
		return BindingExplained{Kind: BindingMode, Locality: place(r.Locality), Text: r.Text}
	}
	b := nearest(rows, e.result == nil || e.result.Demand == 0)
	if p := e.s.Spec.Policy; b.Kind == BindingQueue || ((b.Kind == BindingCeiling || b.Kind == BindingLimit) && p.IgnoresLoad()) {
		if e.s.Spec.Prefers() && p != isobar.PolicyFixed {
			return BindingExplained{Kind: BindingPolicy, Text: fmt.Sprintf("preferred localities are filled first (policy %s)", p)}
		}
		if text, other := policyTexts[p]; other {
			return BindingExplained{Kind: BindingPolicy, Text: text}
		}
	}
	return b
}

// policyTexts say what each policy does that is not about latency.
var policyTexts = map[isobar.Policy]string{
	isobar.PolicyWaterfallByRegion: "policy waterfall-by-region fills the nearest region's zones evenly, each source near zones first",
	isobar.PolicyWaterfallByZone:   "policy waterfall-by-zone leaves a part of the nearest zone to those that are nearer",
	isobar.PolicySprayToRegion:     "policy spray-to-region fills the nearest region's zones evenly",
	isobar.PolicySprayToWorld:      "policy spray-to-world spreads by capacity, wherever it is",
	isobar.PolicyNearest:           "policy nearest sends to the nearest healthy locality, however full it is",
	isobar.PolicyFixed:             "policy fixed splits by the configured weights of healthy localities",
}

// nearest looks at the localities in the order of their distance, up to the
// farthest that is used: the first that is not used in full binds. A source is
// idle while it has no demand.
func nearest(rows []LocalityExplained, idle bool) BindingExplained {
	first := rows[0].Distance
	for i := range rows {
		r := &rows[i]
		if r.Distance > first && used(rows[:i]) > 0.99 {
			break
		}
		at := place(r.Locality)
		switch {
		case r.Forbidden:
			return BindingExplained{BindingRule, at, fmt.Sprintf("%s is not allowed from here (isolation or residency)", r.Locality)}
		case r.Unreachable:
			text := fmt.Sprintf("no source reaches %s: no request arrives there; a probe continues", r.Locality)
			if r.Outage != "" {
				text = r.Outage
			}
			return BindingExplained{BindingReach, at, text}
		case r.Barred:
			return BindingExplained{BindingReach, at, fmt.Sprintf("%s is cut off from this source: its requests do not arrive there; a probe continues", r.Locality)}
		case r.Healthy == 0:
			return BindingExplained{BindingHealth, at, fmt.Sprintf("%s has no healthy endpoint", r.Locality)}
		case r.Drained:
			return BindingExplained{BindingHealth, at, fmt.Sprintf("%s is drained: %d of %d endpoints are healthy", r.Locality, r.Healthy, r.Endpoints)}
		case r.Full && r.limit() != nil:
			l := r.limit()
			return BindingExplained{BindingLimit, at, full(r) + fmt.Sprintf(", because %s is %s of %s at its endpoints", l.Metric, number(l.Value), number(l.Max))}
		case r.Full && r.Healthy < r.Endpoints:
			return BindingExplained{BindingHealth, at, full(r) + fmt.Sprintf(", with %d of %d endpoints healthy", r.Healthy, r.Endpoints)}
		case r.Full:
			return BindingExplained{BindingCeiling, at, full(r)}
		}
	}
	near := slices.DeleteFunc(slices.Clone(rows), func(r LocalityExplained) bool { return r.Distance > first })
	several := len(slices.DeleteFunc(slices.Clone(near), func(r LocalityExplained) bool { return r.Published < shownShare })) > 1
	switch {
	case used(near) > 0.99 && several:
		return BindingExplained{Kind: BindingNone, Text: "everything goes to the nearest localities, which are equally far"}
	case used(near) > 0.99:
		return BindingExplained{Kind: BindingNone, Text: "everything goes to the nearest locality"}
	case idle:
		return BindingExplained{Kind: BindingNone, Text: "without demand, localities that cost nearly the same share by headroom"}
	}
	return BindingExplained{Kind: BindingQueue, Text: "nothing is full: waiting in queues makes sharing cheaper than the nearest locality alone"}
}

// limit is the limit that counts; nil = none does.
func (r *LocalityExplained) limit() *LimitExplained {
	i := slices.IndexFunc(r.Limits, func(l LimitExplained) bool { return l.Counts && !l.DryRun })
	if i < 0 {
		return nil
	}
	return &r.Limits[i]
}

// full reports a locality that carries all that it may.
func full(r *LocalityExplained) string {
	load, limit := r.Load+r.UnmanagedLoad, r.Limit+r.UnmanagedLoad
	if raised := limit / (r.Ceiling * r.Capacity); raised > raisedSlack {
		return fmt.Sprintf("%s is full: %.0f of %.0f requests/s, its ceiling of %.0f%% raised by %.1f%% because demand exceeds the ceilings",
			r.Locality, load, limit, 100*r.Ceiling, 100*(raised-1))
	}
	if load > 1.01*limit { // health moved load here at once; the next decision takes it away
		return fmt.Sprintf("%s is above its ceiling: %.0f of %.0f requests/s", r.Locality, load, limit)
	}
	return fmt.Sprintf("%s is at its ceiling: %.0f of %.0f requests/s", r.Locality, load, limit)
}

func used(rows []LocalityExplained) float64 {
	sum := 0.0
	for i := range rows {
		sum += rows[i].Published
	}
	return sum
}

func place(l isobar.Locality) *isobar.Locality {
	if l.IsZero() {
		return nil
	}
	return &l
}

func findReason(reasons []assign.Reason, codes ...assign.ReasonCode) (assign.Reason, bool) {
	for _, code := range codes {
		for _, r := range reasons {
			if r.Code == code {
				return r, true
			}
		}
	}
	return assign.Reason{}, false
}

// runnerUp is the cheapest locality that gets nothing from the source.
func runnerUp(rows []LocalityExplained) *RunnerUp {
	best, cheapest := -1, -1
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Published > 0:
			if cheapest < 0 || r.Cost < rows[cheapest].Cost {
				cheapest = i
			}
		case r.Healthy == 0 || r.Barred || r.Unreachable || r.Drained || r.Forbidden || r.Reserve:
		case best < 0 || r.Cost < rows[best].Cost:
			best = i
		}
	}
	if best < 0 || cheapest < 0 {
		return nil
	}
	return &RunnerUp{Locality: rows[best].Locality, Worse: rows[best].Cost - rows[cheapest].Cost}
}

// summarize is the one sentence.
func summarize(e *Explanation) string {
	var parts []string
	rows := slices.Clone(e.Localities)
	slices.SortStableFunc(rows, func(a, b LocalityExplained) int {
		switch {
		case a.Published > b.Published:
			return -1
		case a.Published < b.Published:
			return 1
		}
		return 0
	})
	percents := portions(rows)
	for i := range rows {
		if rows[i].Published >= shownShare {
			parts = append(parts, fmt.Sprintf("%s to %s", percents[i], rows[i].Locality))
		}
	}
	if len(parts) == 0 {
		return "clients get no endpoints: " + e.Binding.Text
	}
	what := fmt.Sprintf("%.0f requests/s go", e.Demand.Rate)
	if e.Demand.Rate == 0 {
		what = "nothing is sent from here; clients that come go"
	}
	out := what + " " + strings.Join(parts, ", ") + ": " + e.Binding.Text
	if r, ok := findReason(e.Reasons, assign.ReasonVariability); ok {
		out += "; " + r.Text
	}
	if e.Deviation != nil {
		out += "; but " + e.Deviation.String()
	}
	return out
}

// portions writes the published shares of a source as percent, rounded so that they add up to
// 100%: what is cut off goes to the largest remainders. All of them have tenths where one is
// below 10%, so that no share that is named reads as 0%. The console rounds by the same rule.
func portions(all []LocalityExplained) []string {
	const tenth, whole = isobar.WeightScale / 1000, isobar.WeightScale / 100
	units, step, sum := make([]int, len(all)), whole, 0
	order := make([]int, len(all))
	for i := range all {
		units[i], order[i] = int(math.Round(all[i].Published*isobar.WeightScale)), i
		sum += units[i]
		if units[i] > 0 && units[i] < 10*whole {
			step = tenth
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(units[b]%step, units[a]%step), cmp.Compare(units[b], units[a]), all[a].Locality.Compare(all[b].Locality))
	})
	left, parts := (sum+step/2)/step, make([]int, len(all))
	for i := range units {
		parts[i] = units[i] / step
		left -= parts[i]
	}
	for _, i := range order {
		if left > 0 && units[i]%step > 0 {
			parts[i]++
			left--
		}
	}
	out := make([]string, len(all))
	for i := range parts {
		if out[i] = strconv.Itoa(parts[i]) + "%"; step == tenth {
			out[i] = strings.TrimSuffix(fmt.Sprintf("%.1f", float64(parts[i])/10), ".0") + "%"
		}
	}
	return out
}
