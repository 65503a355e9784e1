package plan

import (
	"math"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
)

// RequestLimit is how many requests each client of a service may have in progress,
// and how the limit follows what fits.
//
// In an overload without drops, requests wait until they time out, and servers
// work on requests that nobody waits for. The limit keeps the queues of all servers
// together well below the timeout: what clients refuse at once costs no server
// time, and what they send succeeds. Clients choose endpoints without regard to their
// queues, so single queues are up to three times as long as their mean: limitPart.
//
// The limit is part of the cluster. A changed cluster makes Envoy open its
// connections again, so the limit changes rarely: once limits that are alike have fitted
// better for limitDecisions decisions in a row, or at once if clients may need twice as much.
// Many clients that each send little have no limit: it would be a few requests for each.
type RequestLimit struct {
	Max  uint32  `json:"max"`            // requests of one client; 0 = no limit
	Off  int     `json:"off,omitempty"`  // decisions in a row at which another limit fitted better
	Most float64 `json:"most,omitempty"` // the largest of those limits
}

// Rules of the limit.
const (
	limitPart      = 0.3 // of the timeout, for which requests may be in progress at full capacity
	limitBand      = 1.5 // factor by which the limit may differ from what fits
	limitUrgent    = 2.0 // factor from which on it rises at once
	limitDecisions = 5
	leastLimit     = 10 // requests; a lower limit would refuse requests that arrive together by chance, so there is none
	mostLimit      = 1 << 20
)

// limitRequests returns the limit of a service. Mode observe serves nothing but the baseline
// and health, and what the user configures goes before.
func limitRequests(of *Service, at sites, trigger assign.Trigger, prev *Service) (l RequestLimit) {
	if of.Spec.RequestTimeout == 0 || of.Spec.CircuitBreakers.MaxRequests > 0 || of.Mode() == isobar.ModeObserve {
		return l
	}
	if prev != nil {
		l = prev.RequestLimit
	}
	if trigger == assign.Tick && of.Load != nil && of.Hold == "" {
		l = l.follow(fittingLimit(at, of.Load.Largest, of.Spec.RequestTimeout.Duration()))
	}
	return l
}

// fittingLimit is the limit for one client with which the client that sends most, the
// largest part of all requests, may use its part of the capacity; 0 = not known, because the capacity of a locality is
// not, or nobody sends.
func fittingLimit(at sites, largest float64, timeout time.Duration) float64 {
	capacity := 0.0
	for i := range at {
		s := &at[i]
		switch {
		case s.Group.Usable() == 0 || s.Drained:
		case !s.declared && !s.learned:
			return 0
		case s.Unreachable: // an outage ends, and the cluster need not change twice
			capacity += s.Nominal
		default:
			capacity += s.Capacity
		}
	}
	return min(mostLimit, capacity*largest*limitPart*timeout.Seconds())
}

// follow returns the limit after a decision at which fits would be best; 0 = not known.
func (l RequestLimit) follow(fits float64) RequestLimit {
	now := float64(l.Max)
	switch {
	case fits <= 0:
		return l
	case l.Max > 0 && fits <= now*limitBand && fits >= max(leastLimit, now)/limitBand:
		return RequestLimit{Max: l.Max}
	case l.Max > 0 && fits > now*limitUrgent:
		return RequestLimit{Max: uint32(math.Round(fits))}
	}
	if fits < l.Most/limitBand { // such as while the first clients connect
		l.Off, l.Most = 0, 0
	}
	l.Off, l.Most = l.Off+1, max(l.Most, fits)
	switch {
	case l.Off < limitDecisions:
		return l
	case l.Most < leastLimit:
		return RequestLimit{}
	}
	return RequestLimit{Max: uint32(math.Round(l.Most))}
}

// revive returns a saved limit that makes sense.
func (l RequestLimit) revive() RequestLimit {
	if l.Max > mostLimit {
		return RequestLimit{}
	}
	return RequestLimit{Max: l.Max}
}
