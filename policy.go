package isobar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Policy says what decides where the traffic of a service should go. Whatever
// it is, shares are paced, rounded and vetted, and have failover tiers.
type Policy uint8

// The policies.
const (
	// PolicyLatency minimises mean latency under the ceilings.
	PolicyLatency Policy = iota
	// PolicyWaterfallByRegion fills the nearest region, near zones first; what
	// does not fit overflows to the next region.
	PolicyWaterfallByRegion
	// PolicyWaterfallByZone fills the nearest zone, then the next.
	PolicyWaterfallByZone
	// PolicySprayToRegion is PolicyWaterfallByRegion without preference for
	// near zones.
	PolicySprayToRegion
	// PolicySprayToWorld spreads by capacity, wherever that is.
	PolicySprayToWorld
	// PolicyNearest sends to the nearest healthy locality, however full it is.
	PolicyNearest
	// PolicyFixed splits by the configured weights of healthy localities.
	PolicyFixed
)

// ErrBadPolicy is wrapped by the errors of [ParsePolicy].
var ErrBadPolicy = errors.New("bad policy")

var policyNames = []string{
	"latency", "waterfall-by-region", "waterfall-by-zone", "spray-to-region", "spray-to-world", "nearest", "fixed",
}

// PolicyNames lists the names that [ParsePolicy] reads, the default first.
func PolicyNames() []string { return slices.Clone(policyNames) }

// ParsePolicy reads a policy's name.
func ParsePolicy(s string) (Policy, error) {
	if i := slices.Index(policyNames, s); i >= 0 {
		return Policy(i), nil //nolint:gosec // a handful
	}
	return PolicyLatency, fmt.Errorf("%w %q: want one of %s", ErrBadPolicy, s, strings.Join(policyNames, ", "))
}

// String returns the policy's name.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// IgnoresLoad reports whether the policy places traffic however full localities
// are, so that ceilings do not bind.
func (p Policy) IgnoresLoad() bool { return p == PolicyNearest || p == PolicyFixed }

// FailsOver reports whether the failover threshold of a service counts: where
// traffic goes to what is nearest or has a weight, whatever is elsewhere.
// [PolicyLatency] and [PolicySprayToWorld] use what healthy endpoints can do.
func (p Policy) FailsOver() bool { return p != PolicyLatency && p != PolicySprayToWorld }

// MarshalText returns the name, for JSON.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *Policy) UnmarshalText(b []byte) error {
	v, err := ParsePolicy(string(b))
	if err != nil {
		return err
	}
	*p = v
	return nil
}
