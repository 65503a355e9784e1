package isobar

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// HealthStatus is the health of an endpoint. The values are those of
// envoy.config.core.v3.HealthStatus.
type HealthStatus uint8

// The health states. Unknown counts as healthy, as every xDS client does it.
const (
	Unknown HealthStatus = iota
	Healthy
	Unhealthy
	Draining
	Timeout
	Degraded
)

// ErrBadHealth is wrapped by the errors of [ParseHealth].
var ErrBadHealth = errors.New("bad health status")

var healthNames = [...]string{"unknown", "healthy", "unhealthy", "draining", "timeout", "degraded"}

// ParseHealth reads the lower-case name of a state; case is ignored.
func ParseHealth(s string) (HealthStatus, error) {
	for i, n := range healthNames {
		if strings.EqualFold(s, n) {
			return HealthStatus(i), nil
		}
	}
	return Unknown, fmt.Errorf("%w %q: want one of %s", ErrBadHealth, s, strings.Join(healthNames[:], ", "))
}

// String returns the lower-case name.
func (h HealthStatus) String() string {
	if int(h) < len(healthNames) {
		return healthNames[h]
	}
	return fmt.Sprintf("health(%d)", uint8(h))
}

// Usable reports whether an endpoint in this state takes new traffic from every
// kind of data plane: gRPC uses only Healthy and Unknown, so degraded
// endpoints do not count as capacity either.
func (h HealthStatus) Usable() bool { return h == Unknown || h == Healthy }

// MarshalText returns the name, for JSON.
func (h HealthStatus) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (h *HealthStatus) UnmarshalText(b []byte) error {
	v, err := ParseHealth(string(b))
	if err != nil {
		return err
	}
	*h = v
	return nil
}

// HealthOverride is the health of one endpoint as an operator set it, which overrides the
// configuration and checkers.
type HealthOverride struct {
	Service  string       `json:"service"`
	Address  string       `json:"address"`
	Locality Locality     `json:"locality"` // zero while no configuration names the endpoint
	Status   HealthStatus `json:"status"`
	Since    time.Time    `json:"since,omitzero"` // zero: not known
	Who      string       `json:"who,omitempty"`  // operator who set it; empty: not known
	Reason   string       `json:"reason,omitempty"`
}

// HealthChange is a change by an operator of the health of endpoints of a service.
type HealthChange struct {
	Service   string
	Addresses []string
	Status    HealthStatus // Unknown takes back what operators set
	Who       string
	Reason    string
}
