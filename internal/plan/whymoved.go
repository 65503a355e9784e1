package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

const (
	// mostReasons bounds the reasons that a line of the history names.
	mostReasons = 3
	// notable is the part by which demand or capacity differs when the history names it.
	notable = 0.05
	// causing is the part of what moved that a difference is at least where the history
	// names it as the cause. A difference of demand or capacity moves about as many requests
	// as it is itself, so a smaller one does not explain the move: in the later steps of a
	// paced move, small sources go up and down as they always do. The measure is what moved,
	// not the demand of the service: in a service of many localities, half of the capacity
	// of one is a small part of all demand, and the cause of what moves.
	causing = 0.5
	// slight is the part of the service's demand below which a difference is chance: that
	// of the small rest of a move would be named otherwise.
	slight = 0.005
)

// NoCause is the reason of a change of which no cause is known.
const NoCause = "to the shares that were computed for the present demand"

// pace are parts of clauses that tell how far one decision went, or in how many decisions
// more something happens.
var pace = []string{" of the requests moved toward ", " of the requests, for ", "then it gets none"}

// explaining are the codes of reasons that say why a share moves, the one that overrides
// the others first. With one of them no other cause is looked for.
var explaining = []assign.ReasonCode{
	assign.ReasonHold, assign.ReasonFallback, assign.ReasonUnhealthy, assign.ReasonFailOpen,
	assign.ReasonBarred, assign.ReasonForbidden, assign.ReasonBaseline,
}

// shaping are the codes of reasons that say what shares are made for, how far and how they
// move. They come after the cause: they hold for long, whatever sets a move off.
var shaping = []assign.ReasonCode{
	assign.ReasonHeld, assign.ReasonShed, assign.ReasonOverflow, assign.ReasonVariability, assign.ReasonNoDemand,
	assign.ReasonBounded, assign.ReasonDamped, assign.ReasonPaced, assign.ReasonSlow, assign.ReasonExit, assign.ReasonFull, assign.ReasonEntry,
}

// whyMoved tells in a line why the shares of a source moved: what set the move off, then
// what limits it. The source is the one at an index into those of the change. before is
// nil if it is not known.
func whyMoved(before, now *Service, c *ServiceChange, source int) string {
	x := &c.Sources[source]
	r := now.Result.Source(x.Source)
	reasons := x.reasons(r, c.Sites)
	if slow, ok := findReason(reasons, assign.ReasonSlow); ok && now.decays() {
		return slow.Text
	}
	if varies := now.whyVariable(x.Source); varies != "" {
		reasons = append(reasons, assign.Reason{Code: assign.ReasonVariability, Text: varies})
	}
	out := textsOf(reasons, explaining)
	if len(out) == 0 {
		if what := setOff(before, now, c, r); what != "" {
			out = append(out, what)
		} else if r == nil {
			out = append(out, "the clients of "+placeName(x.Source)+" are gone")
		}
	}
	out = append(out, textsOf(reasons, shaping)...)
	switch n := len(out); {
	case n == 0:
		return NoCause
	case n > mostReasons:
		return fmt.Sprintf("%s; and %d more", strings.Join(out[:mostReasons], "; "), n-mostReasons)
	}
	return strings.Join(out, "; ")
}

// CauseIn returns what the reason of a change says of its cause, without what it says of that
// one decision: of several decisions together that is not true. NoCause, if nothing is left.
func CauseIn(reason string) string {
	clauses := slices.DeleteFunc(strings.Split(reason, "; "), func(clause string) bool {
		return strings.HasPrefix(clause, "and ") && strings.HasSuffix(clause, " more") ||
			slices.ContainsFunc(pace, func(part string) bool { return strings.Contains(clause, part) })
	})
	if len(clauses) == 0 {
		return NoCause
	}
	return strings.Join(clauses, "; ")
}

// setOff returns the event that set a move off without a reason code; empty if none is known. r
// is the result of the source, nil if the source is gone.
func setOff(before, now *Service, c *ServiceChange, r *assign.SourceResult) string {
	switch {
	case r != nil && now.Hold != "":
		return now.Hold
	case before == nil:
		return ""
	}
	was, is := before.Result.Sources, now.Result.Sources
	most := causeOf(before, now, max(causing*movedRate(is, c), slight*max(totalDemand(was), totalDemand(is))))
	return most.text()
}

// reasons returns the reasons of a source's result that are about what changed.
func (c *SourceChange) reasons(r *assign.SourceResult, sites []isobar.Locality) (out []assign.Reason) {
	if r == nil {
		return nil
	}
	for i := range r.Reasons {
		if c.concerns(&r.Reasons[i], sites) {
			out = append(out, r.Reasons[i])
		}
	}
	return out
}

// concerns reports whether a reason is about what changed of the source's shares: about
// the whole source, about a locality whose share changed, or about one whose share may not
// rise, which is why others changed.
func (c *SourceChange) concerns(r *assign.Reason, sites []isobar.Locality) bool {
	if r.Locality.IsZero() || r.Code == assign.ReasonHeld || len(c.Before) != len(c.After) {
		return true
	}
	at, ok := slices.BinarySearchFunc(sites, r.Locality, isobar.Locality.Compare)
	return ok && at < len(c.Before) && c.Before[at] != c.After[at]
}

// textsOf returns the texts of the reasons with these codes, in the order of the codes,
// each with its locality and once.
func textsOf(reasons []assign.Reason, order []assign.ReasonCode) (out []string) {
	for _, code := range order {
		for i := range reasons {
			r := &reasons[i]
			if r.Code != code {
				continue
			}
			text := r.Text
			if l := r.Locality; !l.IsZero() && !strings.Contains(text, l.String()) {
				text = l.String() + ": " + text
			}
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// movedRate is what a change moves between localities, of all sources together, in requests/s
// of the demand in the results.
func movedRate(results []assign.SourceResult, c *ServiceChange) (sum float64) {
	for i, j := 0, 0; i < len(c.Sources); i++ { // both are sorted
		x := &c.Sources[i]
		for j < len(results) && results[j].Source.Compare(x.Source) < 0 {
			j++
		}
		if j < len(results) && results[j].Source == x.Source {
			sum += results[j].Demand * x.moved()
		}
	}
	return sum
}

// totalDemand is the demand of all sources, requests/s.
func totalDemand(results []assign.SourceResult) (sum float64) {
	for i := range results {
		sum += results[i].Demand
	}
	return sum
}

// cause is a demand or a capacity that differs between two plans of a service.
type cause struct {
	of       string // the quantity
	at       isobar.Locality
	from, to float64 // requests/s
	gone     bool    // the later plan does not have the source
}

// causeOf finds the demand or the capacity that differs most between two plans of a
// service, and by at least the given requests/s. What one of the plans does not have
// counts as 0 there.
func causeOf(before, now *Service, least float64) (most cause) {
	exceeds := func(c *cause) bool {
		d := c.size()
		return d > most.size() && d >= notable*max(c.from, c.to) && d >= least
	}
	was, is := before.Result.Sources, now.Result.Sources
	merge(len(was), len(is), func(i, j int) int { return was[i].Source.Compare(is[j].Source) }, func(i, j int) {
		c := cause{of: "demand from", gone: j < 0}
		if i >= 0 {
			c.at, c.from = was[i].Source, was[i].Demand
		}
		if j >= 0 {
			c.at, c.to = is[j].Source, is[j].Demand
		}
		if exceeds(&c) {
			most = c
		}
	})
	old, sites := before.Sites, now.Sites
	merge(len(old), len(sites), func(i, j int) int { return old[i].Group.Locality.Compare(sites[j].Group.Locality) }, func(i, j int) {
		c := cause{of: "capacity of"}
		if i >= 0 {
			c.at, c.from = old[i].Group.Locality, old[i].Capacity
		}
		if j >= 0 {
			c.at, c.to = sites[j].Group.Locality, sites[j].Capacity
		}
		if exceeds(&c) && (i < 0 || j < 0 || !now.Site(j).followsDemand()) {
			most = c
		}
	})
	return most
}

// merge walks through two sorted lists of n and m elements together. It calls visit with
// the indices of what is in both, and with -1 for the list that does not have it.
func merge(n, m int, compare func(i, j int) int, visit func(i, j int)) {
	for i, j := 0, 0; i < n || j < m; {
		var order int
		switch {
		case j == m:
			order = -1
		case i == n:
			order = 1
		default:
			order = compare(i, j)
		}
		switch {
		case order < 0:
			visit(i, -1)
			i++
		case order > 0:
			visit(-1, j)
			j++
		default:
			visit(i, j)
			i, j = i+1, j+1
		}
	}
}

func (c *cause) size() float64 { return math.Abs(c.to - c.from) }

// text says it in words; empty where there is none, or none that figures show.
func (c *cause) text() string {
	from, to := rateOf(c.from), rateOf(c.to)
	if from == to {
		return ""
	}
	verb := "rose"
	if c.to < c.from {
		verb = "fell"
	}
	out := fmt.Sprintf("%s %s %s from %s to %s requests/s", c.of, placeName(c.at), verb, from, to)
	if c.gone {
		out += ": its clients are gone"
	}
	return out
}

// rateOf writes requests/s as people read them: small ones with a digit after the point,
// so that what differs by a twentieth does not look alike.
func rateOf(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 19.95:
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

// placeName names a source locality in a sentence.
func placeName(l isobar.Locality) string {
	if l.IsZero() {
		return "clients without a locality"
	}
	return l.String()
}
