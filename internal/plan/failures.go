package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// The texts about failing requests.
const (
	reportedFailures = 0.01 // of a service's requests; more than that is never in order
	leastFailures    = 2.0  // requests that fail: fewer are chance
	nothingLeast     = 5.0  // requests of a source of which none gets through
	mostlyEnded      = 0.5  // of these, that have to have failed, where no single window holds enough: the others may be on their way
	partlyFails      = 0.05 // of the requests to a locality, where its service fails less than reportedFailures
	endpointFails    = 0.1  // of the requests to an endpoint
	endpointWorse    = 3.0  // times what fails at the other endpoints of its locality
	servingLeast     = 10.0 // requests that succeed in a locality, so that it serves
	servingFails     = 0.1  // of the requests to a locality that may fail while it serves
)

// Failures says what of a service's requests fails, by what its clients reported
// last, in sentences that name source, locality and figure; nil while it is at
// most 1% and every source gets something through. Drops that Isobar asks for are
// no failures.
func (s *Service) Failures() []Trouble {
	if s.Load == nil {
		return nil
	}
	var out []Trouble
	sent, failed, count, served := 0.0, 0.0, 0.0, false
	newest, recent := s.Load.Outcomes, s.Load.WorstRecent
	var worst failing
	for i := range s.Load.Sources {
		src := &s.Load.Sources[i]
		f := failingOf(src)
		sent += f.sent
		failed += f.failed
		count += f.failed * src.Window.Seconds()
		served = served || f.succeeded > 0
		if f.failed > worst.failed {
			worst = f
		}
	}
	for i := range s.Load.Sources {
		src := &s.Load.Sources[i]
		switch f := failingOf(src); {
		case !served && newest.Attempts-newest.Failed < 1: // the whole service fails
		case served && f.sent*src.Window.Seconds() >= nothingLeast && f.succeeded == 0:
			text := fmt.Sprintf("all requests from %s fail: %s requests/s get an error or no answer", src.Source, brief(f.sent))
			out = append(out, Trouble{TroubleSource, src.Source, text})
		case f.succeeded == 0 && inVain(src.Futile):
			text := fmt.Sprintf("all requests from %s fail: at least the last %.0f; there are few, so several reports count together",
				src.Source, math.Floor(src.Futile.Failed))
			out = append(out, Trouble{TroubleSource, src.Source, text})
		}
	}
	all := true
	switch {
	case failed > reportedFailures*sent && count >= leastFailures:
		out = append(out, Trouble{TroubleFailing, worst.at, fmt.Sprintf("%s%% of the requests fail: %s", brief(100*failed/sent), worst.text())})
	case newest.Few() && newest.Failed > reportedFailures*newest.Attempts && newest.Failed >= leastFailures:
		text := fmt.Sprintf("%.0f of the last %.0f requests failed: there are few, so several reports count together", newest.Failed, newest.Attempts)
		out = append(out, Trouble{TroubleFailing, isobar.Locality{}, text})
	case recent.Failed >= leastFailures && beyondChance(recent):
		text := fmt.Sprintf("%s%% of the requests in three of the last ten reports failed; in the newest, at most 1%% did", brief(100*recent.Failed/recent.Attempts))
		out = append(out, Trouble{TroubleFailing, isobar.Locality{}, text})
	default:
		all = false
	}
	return append(append(out, s.sitesFailing(!all)...), endpointsFailing(s.Load)...)
}

// brief writes a figure for people: whole from 10 on, below with two significant digits.
func brief(x float64) string {
	if x >= 9.95 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}

// beyondChance reports whether so many failures are more than reportedFailures by more
// than one standard deviation: the worst of several stretches is above its mean.
func beyondChance(o load.Outcomes) bool {
	most := reportedFailures * o.Attempts
	return o.Failed > most+math.Sqrt(most)
}

// inVain reports whether enough requests failed since the last one that succeeded.
func inVain(f load.Futile) bool {
	return f.Failed >= nothingLeast && f.Failed >= mostlyEnded*f.Attempts
}

// siteFailing is what fails at one locality, requests/s of all sources.
type siteFailing struct {
	locality                    isobar.Locality
	attempts, errors, succeeded float64
	count                       float64 // of errors, requests
	served                      float64 // requests that succeeded
}

// landedBySite sums the landed requests by locality, in the order of the localities, with or without
// the failures that make no decision.
func landedBySite(measured *load.ServiceLoad, doubted bool) []siteFailing {
	var out []siteFailing
	for i := range measured.Sources {
		src := &measured.Sources[i]
		for j := range src.Landed {
			l := src.Landed[j]
			if !doubted {
				l.Issued, l.Errors = max(0, l.Issued-max(0, l.Doubted)), max(0, l.Errors-l.Doubted)
				l.Succeeded = max(0, l.Succeeded+min(0, l.Doubted))
			}
			k, found := slices.BinarySearchFunc(out, l.Locality, func(x siteFailing, l isobar.Locality) int { return x.locality.Compare(l) })
			if !found {
				out = slices.Insert(out, k, siteFailing{locality: l.Locality})
			}
			x := &out[k]
			x.attempts += max(l.Issued, l.Succeeded+l.Errors)
			x.errors += l.Errors
			x.succeeded += l.Succeeded
			x.count += l.Errors * src.Window.Seconds()
			x.served += l.Succeeded * src.Window.Seconds()
		}
	}
	return out
}

// Serving lists the localities in which the requests of clients succeed, by what they
// reported last; sorted.
func (s *Service) Serving() []isobar.Locality {
	if s.Load == nil {
		return nil
	}
	var out []isobar.Locality
	for _, x := range landedBySite(s.Load, false) {
		if x.served >= servingLeast && x.attempts-x.succeeded <= servingFails*x.attempts {
			out = append(out, x.locality)
		}
	}
	return out
}

// FailingIn lists the localities in which more than a tenth of the requests of clients fail, by what
// they reported last; sorted.
func (s *Service) FailingIn() []isobar.Locality {
	if s.Load == nil {
		return nil
	}
	var out []isobar.Locality
	for _, x := range landedBySite(s.Load, false) {
		if x.count >= servingLeast && x.errors > servingFails*x.attempts {
			out = append(out, x.locality)
		}
	}
	return out
}

// sitesFailing reports localities where everything fails, unless they are reported as
// unreachable, and, unless the whole service is reported, those where much does.
func (s *Service) sitesFailing(partly bool) []Trouble {
	var out []Trouble
	for _, x := range landedBySite(s.Load, true) {
		o := s.outage(x.locality)
		switch {
		case x.succeeded == 0 && x.count >= nothingLeast && (o == nil || s.outageText(o) == ""):
			text := fmt.Sprintf("all requests to %s fail: %s/s, and none succeeds", x.locality, brief(x.errors))
			out = append(out, Trouble{TroubleSite, x.locality, text})
		case partly && x.errors > partlyFails*x.attempts && x.count >= nothingLeast:
			text := fmt.Sprintf("%.0f%% of the requests to %s fail: %s of %s requests/s", 100*x.errors/x.attempts, x.locality, brief(x.errors), brief(x.attempts))
			out = append(out, Trouble{TroubleSitePartly, x.locality, text})
		}
	}
	for _, f := range s.Load.Futile {
		o := s.outage(f.Locality)
		if !slices.ContainsFunc(s.Spec.Localities, func(l isobar.ServiceLocality) bool { return l.Locality == f.Locality }) {
			continue // it is no longer configured: these requests are of the time before
		}
		told := slices.ContainsFunc(out, func(t Trouble) bool { return t.Locality == f.Locality }) || o != nil && s.outageText(o) != ""
		if !told && inVain(f.Futile) {
			text := fmt.Sprintf("all requests to %s fail: at least the last %.0f, and none succeeds; there are few, so several reports count together",
				f.Locality, math.Floor(f.Failed))
			out = append(out, Trouble{TroubleSite, f.Locality, text})
		}
	}
	return out
}

// endpointsFailing reports endpoints that fail much more than the others of their
// locality, where clients report by endpoint.
func endpointsFailing(measured *load.ServiceLoad) []Trouble {
	window := time.Duration(0)
	for i := range measured.Sources {
		window = max(window, measured.Sources[i].Window)
	}
	var out []Trouble
	for i := range measured.Sites {
		site := &measured.Sites[i]
		sent, failed := 0.0, 0.0
		for _, e := range site.Endpoints {
			sent += max(e.Issued, e.Errors)
			failed += e.Errors
		}
		for _, e := range site.Endpoints {
			own := max(e.Issued, e.Errors)
			others := (failed - e.Errors) * own // both sides times what each sends
			if e.Errors > endpointFails*own && e.Errors*window.Seconds() >= nothingLeast && sent > own && e.Errors*(sent-own) >= endpointWorse*others {
				text := fmt.Sprintf("the endpoint %s in %s fails %.0f%% of its requests, the others there %.0f%%",
					e.Address, site.Locality, 100*e.Errors/own, 100*(failed-e.Errors)/(sent-own))
				out = append(out, Trouble{TroubleEndpoint, site.Locality, text})
			}
		}
	}
	return out
}

// failing is what of a source's requests fails, requests/s.
type failing struct {
	source                  isobar.Locality
	sent, failed, succeeded float64
	dropped                 float64 // of failed, by the clients themselves
	at                      isobar.Locality
	atSent, atFailed        float64 // where most of it does
}

func failingOf(src *load.SourceLoad) failing {
	f := failing{source: src.Source, dropped: src.Drop}
	for _, d := range src.Drops {
		if d.Category == isobar.DropCategory {
			f.dropped -= d.Rate
		}
	}
	f.dropped = max(0, f.dropped)
	f.sent, f.failed = f.dropped, f.dropped
	for i := range src.Landed {
		x := &src.Landed[i]
		// Requests that fail now may have been issued in the window before.
		attempts := max(x.Issued, x.Succeeded+x.Errors)
		f.sent += attempts
		f.failed += x.Errors
		f.succeeded += x.Succeeded
		if x.Errors > f.atFailed {
			f.at, f.atSent, f.atFailed = x.Locality, attempts, x.Errors
		}
	}
	return f
}

func (f *failing) text() string {
	if f.dropped > f.atFailed {
		return fmt.Sprintf("clients in %s refuse %s of %s requests/s themselves, by circuit breakers", f.source, brief(f.dropped), brief(f.sent))
	}
	return fmt.Sprintf("most of them from %s to %s, where %s of %s requests/s do", f.source, f.at, brief(f.atFailed), brief(f.atSent))
}

// Outages says which localities fail, or did until a moment ago, in sentences with
// the evidence. In mode observe nothing follows from it.
func (s *Service) Outages() []Trouble {
	var out []Trouble
	for _, o := range s.Deviations.Outages {
		if i := slices.IndexFunc(s.Spec.Localities, func(l isobar.ServiceLocality) bool { return l.Locality == o.Locality }); i < 0 {
			continue
		}
		if text := s.outageText(&o); text != "" {
			kind := TroubleUnreachable
			if o.Open > 0 {
				kind = TroubleReturning
			}
			out = append(out, Trouble{kind, o.Locality, text})
		}
	}
	return out
}

// outage finds what is known of a locality's outage; nil = there is none.
func (s *Service) outage(l isobar.Locality) *load.Outage {
	i, ok := slices.BinarySearchFunc(s.Deviations.Outages, l, func(o load.Outage, l isobar.Locality) int { return o.Locality.Compare(l) })
	if !ok {
		return nil
	}
	return &s.Deviations.Outages[i]
}

func (s *Service) outageText(o *load.Outage) string {
	follows := "a probe continues"
	if s.Mode() == isobar.ModeObserve {
		follows = "mode observe leaves clients there"
	}
	switch {
	case o.Open > 0 && s.Mode() == isobar.ModeObserve:
		return ""
	case o.Open >= 1:
		return ""
	case o.Open > 0:
		seen := ""
		if o.Attempts > 0 {
			seen = fmt.Sprintf(" (%.0f of %.0f requests succeeded)", o.Succeeded, o.Attempts)
		}
		return fmt.Sprintf("%s works again%s: it gets up to %.0f%% of its share for now", o.Locality, seen, 100*o.Open)
	case o.Attempts <= 0:
		return fmt.Sprintf("no source reaches %s: no request arrives there from the sources that send to it; %s", o.Locality, follows)
	}
	return fmt.Sprintf("no source reaches %s: %.0f of %.0f requests from all sources succeeded there; %s", o.Locality, o.Succeeded, o.Attempts, follows)
}
