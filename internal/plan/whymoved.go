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
	// told is the part by which demand or capacity differs when the history names it.
	told = 0.05
)

// explaining are the codes of reasons that say why a share moves, the one that overrides
// the others first. With one of them the cause is told.
var explaining = []assign.ReasonCode{
	assign.ReasonHold, assign.ReasonFallback, assign.ReasonUnhealthy, assign.ReasonFailOpen, assign.ReasonShed, assign.ReasonOverflow,
	assign.ReasonBarred, assign.ReasonForbidden, assign.ReasonHeld, assign.ReasonBaseline, assign.ReasonNoDemand,
}

// shaping are the codes of reasons that say how far and how a share moves.
var shaping = []assign.ReasonCode{
	assign.ReasonBounded, assign.ReasonDamped, assign.ReasonPaced, assign.ReasonSlow, assign.ReasonExit, assign.ReasonFull, assign.ReasonEntry,
}

// whyMoved tells in a line why the shares of a source moved: what set the move off, then
// what limits it. before is nil if it is not known.
func whyMoved(before, now *Service, x *SourceChange, sites []isobar.Locality) string {
	var reasons []assign.Reason
	if r := now.Result.Source(x.Source); r != nil {
		reasons = slices.DeleteFunc(slices.Clone(r.Reasons), func(r assign.Reason) bool { return !x.concerns(r.Locality, sites) })
		if slow, ok := findReason(reasons, assign.ReasonSlow); ok && now.decays() {
			return slow.Text
		}
	}
	out := textsOf(reasons, explaining)
	if len(out) == 0 {
		switch cause, swung := causeOf(before, now), now.whySwung(x.Source); {
		case now.Hold != "":
			out = append(out, now.Hold)
		case swung != "":
			out = append(out, swung)
		case cause != "":
			out = append(out, cause)
		}
	}
	out = append(out, textsOf(reasons, shaping)...)
	switch n := len(out); {
	case n == 0:
		return "to the solver's target"
	case n > mostReasons:
		return fmt.Sprintf("%s; and %d more", strings.Join(out[:mostReasons], "; "), n-mostReasons)
	}
	return strings.Join(out, "; ")
}

// concerns reports whether the source's share of a locality changed. What is about no
// locality concerns the whole source.
func (c *SourceChange) concerns(l isobar.Locality, sites []isobar.Locality) bool {
	at, ok := slices.BinarySearchFunc(sites, l, isobar.Locality.Compare)
	if !ok || at >= max(len(c.Before), len(c.After)) {
		return l.IsZero()
	}
	return len(c.Before) != len(c.After) || c.Before[at] != c.After[at]
}

// textsOf returns the texts of the reasons with these codes, in the order of the codes,
// each with its locality and once.
func textsOf(reasons []assign.Reason, order []assign.ReasonCode) (out []string) {
	for _, code := range order {
		for _, r := range reasons {
			text := r.Text
			if l := r.Locality; !l.IsZero() && !strings.Contains(text, l.String()) {
				text = l.String() + ": " + text
			}
			if r.Code == code && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// causeOf names the demand or capacity that differs most between two plans of a service,
// in requests/s; empty where none differs much.
func causeOf(before, now *Service) (out string) {
	if before == nil {
		return ""
	}
	most := 0.0
	look := func(what string, l isobar.Locality, from, to float64) {
		d := math.Abs(to - from)
		if d <= most || d < told*max(from, to) {
			return
		}
		verb := "rose"
		if to < from {
			verb = "fell"
		}
		if was, is := rateOf(from), rateOf(to); was != is {
			most, out = d, fmt.Sprintf("%s %s %s from %s to %s requests/s", what, placeName(l), verb, was, is)
		}
	}
	for i := range now.Result.Sources {
		r := &now.Result.Sources[i]
		if was := before.Result.Source(r.Source); was != nil {
			look("demand from", r.Source, was.Demand, r.Demand)
		}
	}
	for i := range now.Sites {
		s := &now.Sites[i]
		at := slices.IndexFunc(before.Sites, func(b assign.Site) bool { return b.Group.Locality == s.Group.Locality })
		if at >= 0 {
			look("capacity of", s.Group.Locality, before.Sites[at].Capacity, s.Capacity)
		}
	}
	return out
}

// rateOf writes requests/s as people read them: below 10 with a digit after the point.
func rateOf(rate float64) string {
	if rate < 9.95 {
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
