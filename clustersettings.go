package isobar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Protocol is what clients speak with the endpoints of a service.
type Protocol uint8

// The protocols.
const (
	// ProtocolUnset follows the kind of the health checks, see
	// [Service.EndpointProtocol].
	ProtocolUnset Protocol = iota
	ProtocolHTTP1
	ProtocolHTTP2
	ProtocolGRPC // HTTP/2; gRPC clients speak nothing else
	// ProtocolAuto is what ALPN finds where there is TLS, else what a proxy's own
	// client speaks.
	ProtocolAuto
)

var endpointProtocolNames = [...]string{"", "http1", "http2", "grpc", "auto"}

// EndpointProtocolNames lists the names of protocols.
func EndpointProtocolNames() []string { return slices.Clone(endpointProtocolNames[1:]) }

// ErrBadClusterSetting is wrapped by the errors about texts that name no
// protocol and no policy.
var ErrBadClusterSetting = errors.New("bad cluster setting")

// ParseEndpointProtocol reads "http1", "http2", "grpc" or "auto".
func ParseEndpointProtocol(s string) (Protocol, error) {
	if i := slices.Index(endpointProtocolNames[:], s); i > 0 {
		return Protocol(i), nil //nolint:gosec // i < 5
	}
	return ProtocolUnset, fmt.Errorf("%w: protocol %.100q, want one of %s", ErrBadClusterSetting, s, strings.Join(endpointProtocolNames[1:], ", "))
}

// String returns the protocol's name; it is empty where none is set.
func (p Protocol) String() string {
	if int(p) < len(endpointProtocolNames) {
		return endpointProtocolNames[p]
	}
	return fmt.Sprintf("protocol(%d)", uint8(p))
}

// MarshalText returns the name, for JSON.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *Protocol) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*p = ProtocolUnset
		return nil
	}
	v, err := ParseEndpointProtocol(string(b))
	if err != nil {
		return err
	}
	*p = v
	return nil
}

// LBPolicy is how clients pick an endpoint within a locality.
type LBPolicy uint8

// The policies.
const (
	LBRoundRobin LBPolicy = iota
	LBLeastRequest
)

var lbPolicyNames = [...]string{"round_robin", "least_request"}

// LBPolicyNames lists the names of policies.
func LBPolicyNames() []string { return slices.Clone(lbPolicyNames[:]) }

// ParseLBPolicy reads "round_robin" or "least_request".
func ParseLBPolicy(s string) (LBPolicy, error) {
	if i := slices.Index(lbPolicyNames[:], s); i >= 0 {
		return LBPolicy(i), nil //nolint:gosec // i < 2
	}
	return LBRoundRobin, fmt.Errorf("%w: lb_policy %.100q, want one of %s", ErrBadClusterSetting, s, strings.Join(lbPolicyNames[:], ", "))
}

// String returns the policy's name.
func (p LBPolicy) String() string {
	if int(p) < len(lbPolicyNames) {
		return lbPolicyNames[p]
	}
	return fmt.Sprintf("lb_policy(%d)", uint8(p))
}

// MarshalText returns the name, for JSON.
func (p LBPolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *LBPolicy) UnmarshalText(b []byte) error {
	v, err := ParseLBPolicy(string(b))
	if err != nil {
		return err
	}
	*p = v
	return nil
}

// CircuitBreakers are the limits of each client (Envoy: of each process) for one
// service; 0 = no limit.
type CircuitBreakers struct {
	MaxConnections     uint32 `json:"max_connections,omitempty"`
	MaxPendingRequests uint32 `json:"max_pending_requests,omitempty"`
	MaxRequests        uint32 `json:"max_requests,omitempty"`
	MaxRetries         uint32 `json:"max_retries,omitempty"`
}

// SystemCA means the certificates that the client's system trusts,
// instead of a path.
const SystemCA = "system"

// EndpointTLS configures TLS between clients and endpoints. Paths are those of files on the client's
// machine.
type EndpointTLS struct {
	SNI string `json:"sni,omitempty"` // server name that the client sends; "" = none
	CA  string `json:"ca,omitempty"`  // path of the authorities, or [SystemCA]
	// SubjectAltNames are the accepted names, one of which the endpoint's certificate must have;
	// never empty: URIs such as SPIFFE IDs, IP addresses or DNS names. A URI may end with a *, which
	// stands for any text.
	SubjectAltNames []string `json:"subject_alt_names,omitempty"`
	Cert            string   `json:"cert,omitempty"` // path of the client's certificate; "" = none
	Key             string   `json:"key,omitempty"`  // path of its key

	// GRPC gives the settings for gRPC clients, which can't read these files from a cluster; nil =
	// none: they use the credentials of their program.
	GRPC *CertificateProviders `json:"grpc,omitempty"`
}

// CertificateProviders name entries of certificate_providers in the bootstrap
// file of gRPC clients (gRFC A29).
type CertificateProviders struct {
	CA   string `json:"ca"`             // gives the authorities
	Cert string `json:"cert,omitempty"` // gives the client's certificate; "" = none
}

// Equal reports whether two settings say the same; both may be nil.
func (t *EndpointTLS) Equal(other *EndpointTLS) bool {
	if t == nil || other == nil {
		return t == other
	}
	a, b := t.GRPC, other.GRPC
	return t.SNI == other.SNI && t.CA == other.CA && t.Cert == other.Cert && t.Key == other.Key &&
		slices.Equal(t.SubjectAltNames, other.SubjectAltNames) && (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// Defaults and bounds of ClusterSettings.
const (
	DefaultConnectTimeout = 2 * time.Second
	MinConnectTimeout     = time.Millisecond
	MaxConnectTimeout     = time.Hour

	// DefaultHealthyPanicThreshold is lower than Envoy's 50%, at which the
	// ejection of a large locality would bring back its traffic.
	DefaultHealthyPanicThreshold = 10
)

// Bounds of ClusterSettings.RequestTimeout.
const (
	MinRequestTimeout = time.Millisecond
	MaxRequestTimeout = time.Hour
)

// LimitedEjectionTime is base_ejection_time, if it is not set, of clusters that limit
// the requests in progress of each client. Overload then fills no queue in
// which requests time out, so consecutive errors mostly mean that an endpoint is broken.
const LimitedEjectionTime = 6 * time.Second

// ClusterSettings is what clients do on their own with the endpoints of a
// service, other than sharing out requests over localities.
type ClusterSettings struct {
	Protocol       Protocol       `json:"protocol,omitzero"`
	TLS            *EndpointTLS   `json:"tls,omitempty"` // nil = plaintext
	ConnectTimeout ConnectTimeout `json:"connect_timeout,omitzero"`
	// RequestTimeout is how long clients wait for a response before they give up, as
	// their routes say; 0 = not known.
	RequestTimeout   RequestTimeout   `json:"request_timeout,omitzero"`
	CircuitBreakers  CircuitBreakers  `json:"circuit_breakers,omitzero"`
	LBPolicy         LBPolicy         `json:"lb_policy,omitzero"`
	OutlierDetection OutlierDetection `json:"outlier_detection,omitzero"`
	// HealthyPanicThreshold is the percentage of usable endpoints of a priority below which Envoy
	// uses all of them; nil = DefaultHealthyPanicThreshold, 0 = never.
	HealthyPanicThreshold *uint32 `json:"healthy_panic_threshold,omitempty"`
}

// SameCluster reports whether two settings say the same.
func (c *ClusterSettings) SameCluster(other *ClusterSettings) bool {
	return c.Protocol == other.Protocol && c.TLS.Equal(other.TLS) && c.ConnectTimeout == other.ConnectTimeout &&
		c.RequestTimeout == other.RequestTimeout &&
		c.CircuitBreakers == other.CircuitBreakers && c.LBPolicy == other.LBPolicy && c.OutlierDetection == other.OutlierDetection &&
		c.PanicThreshold() == other.PanicThreshold()
}

// Limited returns the settings with at most limit requests in progress for each
// client; 0 = no limit. A configured max_requests stays as it is.
func (c *ClusterSettings) Limited(limit uint32) ClusterSettings {
	out := *c
	if limit == 0 || out.CircuitBreakers.MaxRequests > 0 {
		return out
	}
	out.CircuitBreakers.MaxRequests = limit
	if _, given := out.OutlierDetection.Given(OutlierBaseEjectionTime); !given && !out.OutlierDetection.Off {
		out.OutlierDetection.Set(OutlierBaseEjectionTime, int64(LimitedEjectionTime))
	}
	return out
}

// PanicThreshold is HealthyPanicThreshold with the default filled in.
func (c *ClusterSettings) PanicThreshold() uint32 {
	if c.HealthyPanicThreshold == nil {
		return DefaultHealthyPanicThreshold
	}
	return *c.HealthyPanicThreshold
}

// ConnectTimeout is how long a client waits for a connection with an endpoint;
// 0 = DefaultConnectTimeout. In JSON it is text, such as "2s".
type ConnectTimeout time.Duration

// Duration returns it with the default filled in.
func (d ConnectTimeout) Duration() time.Duration {
	if d == 0 {
		return DefaultConnectTimeout
	}
	return time.Duration(d)
}

// MarshalText writes the duration.
func (d ConnectTimeout) MarshalText() ([]byte, error) { return durationJSON(d).MarshalText() }

// UnmarshalText reads it.
func (d *ConnectTimeout) UnmarshalText(b []byte) error { return (*durationJSON)(d).UnmarshalText(b) }

// RequestTimeout is how long a client waits for a response; 0 = not known. In JSON it
// is text, such as "1s".
type RequestTimeout time.Duration

// Duration returns it as a duration.
func (d RequestTimeout) Duration() time.Duration { return time.Duration(d) }

// MarshalText writes the duration.
func (d RequestTimeout) MarshalText() ([]byte, error) { return durationJSON(d).MarshalText() }

// UnmarshalText reads it.
func (d *RequestTimeout) UnmarshalText(b []byte) error { return (*durationJSON)(d).UnmarshalText(b) }

// EndpointProtocol is the protocol of a service. Where it is not set, a
// health check by gRPC or HTTP/2 speaks for it; all else is HTTP/1.
func (s *Service) EndpointProtocol() Protocol {
	if s.Protocol != ProtocolUnset {
		return s.Protocol
	}
	for i := range s.HealthChecks {
		switch c := &s.HealthChecks[i]; {
		case c.Protocol == CheckGRPC:
			return ProtocolGRPC
		case c.Protocol == CheckHTTP && c.HTTP != nil && c.HTTP.HTTP2:
			return ProtocolHTTP2
		}
	}
	return ProtocolHTTP1
}
