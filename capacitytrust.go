package isobar

import "fmt"

// CapacityTrust says what plans go by where a declared capacity and what requests
// experience differ.
type CapacityTrust string

// The kinds of trust. Empty = observed.
const (
	TrustDeclared CapacityTrust = "declared" // the declaration
	TrustObserved CapacityTrust = "observed" // what requests tell, once they tell enough
)

// Observed reports whether plans use estimates from requests.
func (t CapacityTrust) Observed() bool { return t != TrustDeclared }

// CapacityTrusts lists them all.
func CapacityTrusts() []CapacityTrust { return []CapacityTrust{TrustDeclared, TrustObserved} }

// ParseCapacityTrust reads one by its name. The error wraps [ErrInvalid].
func ParseCapacityTrust(s string) (CapacityTrust, error) {
	for _, t := range CapacityTrusts() {
		if string(t) == s {
			return t, nil
		}
	}
	return "", fmt.Errorf("%w: capacity_trust %q: want declared or observed", ErrInvalid, s)
}
