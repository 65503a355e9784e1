package isobar

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Latencies that hold where nothing is configured, in milliseconds.
const (
	SameZoneMS        = 0.0
	SameRegionMS      = 1.0
	AssumedRegionalMS = 100.0
)

// LatencyRule sets the network latency from one scope to another. A scope is a
// region, a region/zone or a full locality.
type LatencyRule struct {
	From Locality `json:"from"`
	To   Locality `json:"to"`
	MS   float64  `json:"ms"` // milliseconds, >= 0, finite
}

// ErrBadLatency is wrapped by the errors of [NewNetwork].
var ErrBadLatency = errors.New("bad latency")

// maxLatencyMS bounds a configured latency: an hour is a mistake in units.
const maxLatencyMS = 3.6e6

// Network answers how far localities are from each other. Immutable.
type Network struct {
	rules []LatencyRule
	pairs map[[2]Locality]float64
}

// NewNetwork builds a network. Each pair of scopes may be given once per
// direction; a pair given in one direction only holds in both.
func NewNetwork(rules []LatencyRule) (*Network, error) {
	n := &Network{pairs: make(map[[2]Locality]float64, 2*len(rules)), rules: slices.Clone(rules)}
	for _, r := range rules {
		if math.IsNaN(r.MS) || r.MS < 0 || r.MS > maxLatencyMS {
			return nil, fmt.Errorf("%w from %s to %s: %v, want 0 to %v ms", ErrBadLatency, r.From, r.To, r.MS, maxLatencyMS)
		}
		if r.From.IsZero() || r.To.IsZero() {
			return nil, fmt.Errorf("%w: from and to must name a region, region/zone or locality", ErrBadLatency)
		}
		k := [2]Locality{r.From, r.To}
		if _, dup := n.pairs[k]; dup {
			return nil, fmt.Errorf("%w from %s to %s: given twice", ErrBadLatency, r.From, r.To)
		}
		n.pairs[k] = r.MS
	}
	for _, r := range rules {
		back := [2]Locality{r.To, r.From}
		if _, given := n.pairs[back]; !given {
			n.pairs[back] = r.MS
		}
	}
	slices.SortFunc(n.rules, func(a, b LatencyRule) int {
		return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To))
	})
	return n, nil
}

// Rules gives the configured rules, sorted.
func (n *Network) Rules() []LatencyRule {
	if n == nil {
		return nil
	}
	return slices.Clone(n.rules)
}

// Latency gives the latency between two localities in milliseconds. The most
// specific configured pair wins (most parts named in total, then in from);
// else 0 within a zone, 1 within a region, and 100 otherwise, which is then
// marked as assumed. From or to a client without locality everything is at
// distance 0.
func (n *Network) Latency(from, to Locality) (ms float64, assumed bool) {
	if from.IsZero() || to.IsZero() || from == to {
		return SameZoneMS, false
	}
	if ms, ok := n.configured(from, to); ok {
		return ms, false
	}
	switch {
	case from.ZoneOnly() == to.ZoneOnly():
		return SameZoneMS, false
	case from.Region == to.Region:
		return SameRegionMS, false
	default:
		return AssumedRegionalMS, true
	}
}

func (n *Network) configured(from, to Locality) (float64, bool) {
	if n == nil || len(n.pairs) == 0 {
		return 0, false
	}
	sameZone := from.ZoneOnly() == to.ZoneOnly()
	fs, ts := scopes(from), scopes(to)
	nf, nt := depth(from), depth(to)
	for total := nf + nt; total >= 2; total-- { // parts named in both scopes together
		for f := min(nf, total-1); f >= max(1, total-nt); f-- {
			a, b := fs[f-1], ts[total-f-1]
			// A rule for a region and itself speaks of the distance between
			// its zones, not of what lies inside one zone.
			if a == b && a.Zone == "" && sameZone {
				continue
			}
			if ms, ok := n.pairs[[2]Locality{a, b}]; ok {
				return ms, true
			}
		}
	}
	return 0, false
}

// depth is how many parts name l: a scope never has more than that.
func depth(l Locality) int {
	switch {
	case l.SubZone != "":
		return 3
	case l.Zone != "":
		return 2
	default:
		return 1
	}
}

// scopes lists the scopes around l with 1, 2 and 3 parts.
func scopes(l Locality) [3]Locality {
	return [3]Locality{{Region: l.Region}, l.ZoneOnly(), l}
}
