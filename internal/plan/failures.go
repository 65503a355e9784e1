package plan

import (
	"fmt"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// What is told of failing requests.
const (
	toldFailures  = 0.01 // of a service's requests; more than that is never in order
	leastFailures = 2.0  // requests that fail in a window: fewer are chance
	nothingLeast  = 5.0  // requests in a window of a source of which none gets through
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
		if f := failingOf(src); served && f.sent*src.Window.Seconds() >= nothingLeast && f.succeeded == 0 {
			text := fmt.Sprintf("nothing from %s gets through: %s requests/s fail or get no answer", src.Source, number(f.sent))
			out = append(out, Trouble{TroubleSource, src.Source, text})
		}
	}
	if failed > toldFailures*sent && count >= leastFailures {
		out = append(out, Trouble{TroubleFailing, worst.at, fmt.Sprintf("%s%% of the requests fail: %s", number(100*failed/sent), worst.text())})
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
		return fmt.Sprintf("clients in %s refuse %s of %s requests/s themselves, by circuit breakers", f.source, number(f.dropped), number(f.sent))
	}
	return fmt.Sprintf("most of them from %s to %s, where %s of %s requests/s do", f.source, f.at, number(f.atFailed), number(f.atSent))
}

// Outages says which localities fail, or did until a moment ago, in sentences with
// the evidence. In mode observe nothing follows from it.
func (s *Service) Outages() []Trouble {
	var out []Trouble
	for _, o := range s.Findings.Outages {
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
	i, ok := slices.BinarySearchFunc(s.Findings.Outages, l, func(o load.Outage, l isobar.Locality) int { return o.Locality.Compare(l) })
	if !ok {
		return nil
	}
	return &s.Findings.Outages[i]
}

func (s *Service) outageText(o *load.Outage) string {
	follows := "a probe goes on"
	if s.Mode() == isobar.ModeObserve {
		follows = "mode observe leaves clients there"
	}
	switch {
	case o.Open > 0 && s.Mode() == isobar.ModeObserve:
		return ""
	case o.Open >= 1:
		return ""
	case o.Open > 0:
		return fmt.Sprintf("%s works again (%.0f of %.0f requests succeeded): it gets up to %.0f%% of its share for now",
			o.Locality, o.Succeeded, o.Attempts, 100*o.Open)
	case o.Attempts <= 0:
		return fmt.Sprintf("nobody reaches %s: no source with a stake lands anything there; %s", o.Locality, follows)
	}
	return fmt.Sprintf("nobody reaches %s: %.0f of %.0f requests from all sources succeeded there; %s", o.Locality, o.Succeeded, o.Attempts, follows)
}
