package isobar

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Locality names a place by region, zone and sub-zone, as xDS does. The zero
// value stands for a client that told no locality. Localities are comparable.
type Locality struct {
	Region, Zone, SubZone string
}

// ErrBadLocality is wrapped by every error of [ParseLocality].
var ErrBadLocality = errors.New("bad locality")

// maxNameLen bounds each part of a locality; Envoy's own node fields stay far
// below it.
const maxNameLen = 253

// A "/" within a part, which clients may send, is written so that the text can
// still be taken apart; and so is the sign that does it.
var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescaper = strings.NewReplacer("%25", "%", "%2F", "/", "%2f", "/")
)

// ParseLocality reads "region", "region/zone" or "region/zone/sub_zone", as
// people write them: the parts must not be empty, except that the whole text
// may be. A "/" within a part is written "%2F", and "%" then "%25".
func ParseLocality(s string) (Locality, error) {
	if s == "" {
		return Locality{}, nil
	}
	parts := strings.Split(s, "/")
	if len(parts) > 3 {
		return Locality{}, fmt.Errorf("%w %q: want region/zone/sub_zone, at most 3 parts", ErrBadLocality, s)
	}
	for _, p := range parts {
		if p == "" || strings.TrimSpace(p) != p {
			return Locality{}, fmt.Errorf("%w %q: a part is empty or has blanks around it", ErrBadLocality, s)
		}
		if len(unescaper.Replace(p)) > maxNameLen {
			return Locality{}, fmt.Errorf("%w: a part is longer than %d bytes", ErrBadLocality, maxNameLen)
		}
	}
	return fromParts(parts), nil
}

// fromParts takes 1 to 3 parts.
func fromParts(parts []string) Locality {
	l := Locality{Region: unescaper.Replace(parts[0])}
	if len(parts) > 1 {
		l.Zone = unescaper.Replace(parts[1])
	}
	if len(parts) > 2 {
		l.SubZone = unescaper.Replace(parts[2])
	}
	return l
}

// MustLocality is [ParseLocality] for constants in tests and examples; it
// panics on bad input.
func MustLocality(s string) Locality {
	l, err := ParseLocality(s)
	if err != nil {
		panic(err)
	}
	return l
}

// String returns the form that ParseLocality reads. Trailing empty parts are
// left out; the zero Locality is "".
func (l Locality) String() string {
	region, zone, sub := escaper.Replace(l.Region), escaper.Replace(l.Zone), escaper.Replace(l.SubZone)
	switch {
	case sub != "":
		return region + "/" + zone + "/" + sub
	case zone != "":
		return region + "/" + zone
	default:
		return region
	}
}

// IsZero reports whether no locality was given.
func (l Locality) IsZero() bool { return l == Locality{} }

// ZoneOnly returns the locality without its sub-zone.
func (l Locality) ZoneOnly() Locality { return Locality{Region: l.Region, Zone: l.Zone} }

// Compare orders localities by region, zone and sub-zone.
func (l Locality) Compare(o Locality) int {
	return cmp.Or(
		strings.Compare(l.Region, o.Region),
		strings.Compare(l.Zone, o.Zone),
		strings.Compare(l.SubZone, o.SubZone),
	)
}

// MarshalText makes localities readable in JSON, also as map keys.
func (l Locality) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText is the inverse of MarshalText. Unlike [ParseLocality] it takes
// every locality that a client may have sent, with empty parts and blanks.
func (l *Locality) UnmarshalText(b []byte) error {
	parts := strings.Split(string(b), "/")
	if len(parts) > 3 {
		return fmt.Errorf("%w %q: want region/zone/sub_zone, at most 3 parts", ErrBadLocality, b)
	}
	*l = fromParts(parts)
	return nil
}

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
	rules  []LatencyRule
	pairs  map[[2]Locality]float64
	egress []EgressRule
	prices map[[2]Locality]float64
}

// EgressRule sets what a request costs on its way from one scope to another,
// beside the time that it takes.
type EgressRule struct {
	From  Locality `json:"from"`
	To    Locality `json:"to"`
	Price float64  `json:"price"` // in the milliseconds that a request may take longer to save it, >= 0, finite
}

// ErrBadEgress is wrapped by the errors of [Network.WithEgress].
var ErrBadEgress = errors.New("bad egress price")

// WithEgress returns the network with prices, each in one direction.
func (n *Network) WithEgress(rules []EgressRule) (*Network, error) {
	out := &Network{rules: n.rules, pairs: n.pairs, egress: slices.Clone(rules), prices: make(map[[2]Locality]float64, len(rules))}
	for _, r := range rules {
		if math.IsNaN(r.Price) || r.Price < 0 || r.Price > maxLatencyMS {
			return nil, fmt.Errorf("%w from %s to %s: %v, want 0 to %v ms", ErrBadEgress, r.From, r.To, r.Price, maxLatencyMS)
		}
		if r.From.IsZero() || r.To.IsZero() {
			return nil, fmt.Errorf("%w: from and to must name a region, region/zone or locality", ErrBadEgress)
		}
		k := [2]Locality{r.From, r.To}
		if _, dup := out.prices[k]; dup {
			return nil, fmt.Errorf("%w from %s to %s: given twice", ErrBadEgress, r.From, r.To)
		}
		out.prices[k] = r.Price
	}
	slices.SortFunc(out.egress, func(a, b EgressRule) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	return out, nil
}

// Egress lists the configured prices, sorted.
func (n *Network) Egress() []EgressRule {
	if n == nil {
		return nil
	}
	return slices.Clone(n.egress)
}

// Price returns what a request costs between two localities, in milliseconds: the
// most specific configured pair, else 0; always 0 within a zone, unless the
// pair names zones, and for clients without a locality.
func (n *Network) Price(from, to Locality) float64 {
	if n == nil || from.IsZero() || to.IsZero() || from == to {
		return 0
	}
	price, _ := mostSpecific(n.prices, from, to)
	return price
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

// Rules returns the configured rules, sorted.
func (n *Network) Rules() []LatencyRule {
	if n == nil {
		return nil
	}
	return slices.Clone(n.rules)
}

// Latency returns the latency between two localities in milliseconds. The most
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
	if n == nil {
		return 0, false
	}
	return mostSpecific(n.pairs, from, to)
}

// mostSpecific looks up the pair of scopes that names most parts.
func mostSpecific(pairs map[[2]Locality]float64, from, to Locality) (float64, bool) {
	if len(pairs) == 0 {
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
			if ms, ok := pairs[[2]Locality{a, b}]; ok {
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
