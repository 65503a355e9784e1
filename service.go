package isobar

import (
	"encoding/json"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// Defaults of a service's fields.
const (
	DefaultCeiling       = 0.8
	DefaultMaxShift      = 20.0 // percentage points
	DefaultServiceTimeMS = 10.0
	DefaultErrorCostMS   = 1000.0

	DefaultFailoverThreshold = 0.7
)

// Endpoint is one address of a service.
type Endpoint struct {
	Address     string       `json:"address"`               // IP:port
	Weight      uint32       `json:"weight,omitempty"`      // 0 = not set
	MaxRate     float64      `json:"max_rate,omitempty"`    // requests/s at utilization 1; 0 = not declared
	Concurrency float64      `json:"concurrency,omitempty"` // requests it can work on at once; 0 = not declared
	Health      HealthStatus `json:"health,omitzero"`       // as configured, before overrides and verdicts

	Check   *EndpointCheck   `json:"health_check_config,omitempty"` // nil = as the service's checks say
	Details *EndpointDetails `json:"-"`                             // nil = none; in JSON its fields stand here
}

// ServiceLocality is the part of a service in one locality.
type ServiceLocality struct {
	Locality       Locality   `json:"locality"`
	MaxRate        float64    `json:"max_rate,omitempty"`        // requests/s of all endpoints together; 0 = not declared
	Concurrency    float64    `json:"concurrency,omitempty"`     // of all endpoints together; 0 = not declared
	Ceiling        float64    `json:"ceiling,omitempty"`         // highest planned utilization, (0, 1]; 0 = DefaultCeiling
	CapacityScaler float64    `json:"capacity_scaler,omitempty"` // multiplies the capacity; 0 = 1
	UnmanagedLoad  float64    `json:"unmanaged_load,omitempty"`  // requests/s from clients that neither report nor follow their shares
	Weight         float64    `json:"weight,omitempty"`          // of policy fixed; 0 = gets traffic only when none with a weight is healthy
	Preferred      bool       `json:"preferred,omitempty"`       // filled before other localities
	Metadata       Metadata   `json:"metadata,omitempty"`        // goes to clients unchanged
	Endpoints      []Endpoint `json:"endpoints"`                 // in the order of the configuration
}

// Call declares that a request to a service causes requests to another.
type Call struct {
	Service    string  `json:"service"`
	PerRequest float64 `json:"per_request"`
}

// Service is one EDS cluster and how to balance it. Values are immutable once
// they are part of a [Topology].
type Service struct {
	Name      string      `json:"name"`
	Mode      Mode        `json:"mode"`
	Policy    Policy      `json:"policy,omitzero"`
	Isolation Isolation   `json:"isolation,omitzero"`
	Residency []Residency `json:"residency,omitempty"`
	// FailoverThreshold is the fraction of healthy endpoints below which a locality keeps only a
	// part of its traffic, with policies that use it ([Policy.FailsOver]); (0, 1].
	FailoverThreshold float64 `json:"failover_threshold,omitempty"` // 0 = DefaultFailoverThreshold

	Promote     Promotion    `json:"promote,omitzero"`      // mode auto only
	MaxShift    float64      `json:"max_shift,omitempty"`   // percentage points; mode bounded only; 0 = DefaultMaxShift
	MaxShed     float64      `json:"max_shed,omitempty"`    // fraction of demand that may be dropped, [0, 1)
	Criticality *Criticality `json:"criticality,omitempty"` // order in which requests are dropped; nil = no classes
	// CapacityTrust says which capacity plans use if the declared capacity and the estimate from
	// requests differ; empty = observed.
	CapacityTrust CapacityTrust     `json:"capacity_trust,omitempty"`
	ServiceTimeMS float64           `json:"service_time_ms,omitempty"` // of one request without queueing; 0 = DefaultServiceTimeMS
	ErrorCostMS   float64           `json:"error_cost_ms,omitempty"`   // cost of a failed request, in addition to its latency; 0 = DefaultErrorCostMS
	ORCA          ORCA              `json:"orca,omitzero"`             // endpoints report ORCA; clients weigh them by it
	Localities    []ServiceLocality `json:"localities"`                // sorted, unique
	Calls         []Call            `json:"calls,omitempty"`
	// Limits are dimensions of capacity in addition to max_rate, at most MaxLimits, each metric at
	// most once in force and once as a dry run.
	Limits []Limit `json:"limits,omitempty"`

	HealthChecks []HealthCheck `json:"health_checks,omitempty"` // none: the configuration and operators set the health
	Checkers     Checkers      `json:"checkers,omitzero"`

	Assignment      AssignmentSettings `json:"assignment,omitzero"`
	ClusterSettings                    //nolint:embeddedstructfieldcheck // its fields are the last in JSON
}

// Prefers reports whether some localities are to be filled before the others.
func (s *Service) Prefers() bool {
	return slices.ContainsFunc(s.Localities, func(l ServiceLocality) bool { return l.Preferred })
}

// Endpoint finds an endpoint by its address, in whatever spelling, with the
// locality that it is in. The endpoint has the address as it is configured.
func (s *Service) Endpoint(address string) (Locality, *Endpoint, bool) {
	if ap, err := netip.ParseAddrPort(address); err == nil {
		address = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
	}
	for i := range s.Localities {
		for j := range s.Localities[i].Endpoints {
			if e := &s.Localities[i].Endpoints[j]; e.Address == address {
				return s.Localities[i].Locality, e, true
			}
		}
	}
	return Locality{}, nil, false
}

// Topology is everything that is configured about the fleet: one immutable
// version of it.
type Topology struct {
	Services []Service // sorted by name, unique
	// Awaited are services that are configured, but of whose endpoints nothing is
	// known yet: nothing is decided for them, and clients keep what they have of
	// them. Sorted by name, none of them among Services; they have no localities.
	Awaited []Service
	Network *Network
	// Owners has the owner of each service that does not belong to the configuration
	// file, where a group of replicas shares services: a new leader tells them apart by it.
	Owners map[string]string
	// Revision grows with every change of the topology or of the health that
	// an operator set; a plan that carries it has that change in it.
	Revision uint64
}

// Service finds a service by name.
func (t *Topology) Service(name string) (*Service, bool) {
	// Not slices.BinarySearchFunc: it would copy each service that it looks at.
	i, found := sort.Find(len(t.Services), func(i int) int { return strings.Compare(name, t.Services[i].Name) })
	if !found {
		return nil, false
	}
	return &t.Services[i], true
}

// With returns a topology with these services instead of those of the same
// names; others are not added.
func (t *Topology) With(services []Service) *Topology {
	out := *t
	out.Services = slices.Clone(t.Services)
	for i := range services {
		if s, ok := out.Service(services[i].Name); ok {
			*s = services[i]
		}
	}
	return &out
}

// Normalize sorts services and localities, so that equal topologies are equal
// byte for byte whatever order their parts came in.
func (t *Topology) Normalize() {
	slices.SortStableFunc(t.Services, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })
	for i := range t.Services {
		slices.SortStableFunc(t.Services[i].Localities, func(a, b ServiceLocality) int { return a.Locality.Compare(b.Locality) })
	}
}

// EndpointDetails is what few endpoints have: it goes to clients as it is.
// Immutable, so that all that has an endpoint shares it.
type EndpointDetails struct {
	Hostname            string   `json:"hostname,omitempty"`             // for Envoy's auto_host_rewrite, and gRPC's authority
	AdditionalAddresses []string `json:"additional_addresses,omitempty"` // IP:port, after the endpoint's own in the order of preference
	Metadata            Metadata `json:"metadata,omitempty"`
}

func (d *EndpointDetails) empty() bool {
	return d == nil || d.Hostname == "" && len(d.AdditionalAddresses) == 0 && d.Metadata == ""
}

func (d *EndpointDetails) equal(o *EndpointDetails) bool {
	if d == o {
		return true
	}
	if d.empty() || o.empty() {
		return d.empty() && o.empty()
	}
	return d.Hostname == o.Hostname && d.Metadata == o.Metadata && slices.Equal(d.AdditionalAddresses, o.AdditionalAddresses)
}

// sameDetails compares what clients get beside address, weight and health.
func sameDetails(e, o *Endpoint) bool {
	if e == o {
		return true
	}
	if e == nil || o == nil {
		return false
	}
	sameCheck := e.Check == o.Check || e.Check != nil && o.Check != nil && *e.Check == *o.Check
	return sameCheck && e.Details.equal(o.Details)
}

// Equal reports whether clients get the same of both endpoints.
func (e *WeightedEndpoint) Equal(o *WeightedEndpoint) bool {
	return e.Address == o.Address && e.Weight == o.Weight && e.Health == o.Health && sameDetails(e.Config, o.Config)
}

// Equal reports whether clients get the same of both groups.
func (g *EndpointGroup) Equal(o *EndpointGroup) bool {
	if g.Locality != o.Locality || g.Metadata != o.Metadata || len(g.Endpoints) != len(o.Endpoints) {
		return false
	}
	for i := range g.Endpoints {
		if !g.Endpoints[i].Equal(&o.Endpoints[i]) {
			return false
		}
	}
	return true
}

// plainEndpoint is an Endpoint without its methods.
type plainEndpoint Endpoint

// endpointJSON is an Endpoint in JSON: the details stand among its fields, as
// they do in configuration.
type endpointJSON struct {
	plainEndpoint
	*EndpointDetails
}

// MarshalJSON writes the endpoint as configuration has it.
func (e Endpoint) MarshalJSON() ([]byte, error) {
	return json.Marshal(endpointJSON{plainEndpoint(e), e.Details})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (e *Endpoint) UnmarshalJSON(b []byte) error {
	var j endpointJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*e = Endpoint(j.plainEndpoint)
	if d := j.EndpointDetails; !d.empty() {
		e.Details = d
	}
	return nil
}

// The owners of a service.
const (
	OwnerFile = "file"
	OwnerAPI  = "api"
	OwnerXDS  = "xds" // another control plane, by `discovery.xds` of the configuration file
	OwnerDNS  = "dns" // names that DNS resolves, by `discovery.dns` of the configuration file
	// OwnerKubernetes is a Kubernetes cluster, by `discovery.kubernetes` of the configuration file.
	OwnerKubernetes = "kubernetes"
)

// Object is a service with its owner and revision.
type Object struct {
	Service  Service `json:"service"`
	Owner    string  `json:"owner"`    // OwnerFile, OwnerAPI, OwnerXDS, OwnerDNS or OwnerKubernetes
	Revision uint64  `json:"revision"` // changes with each change of the object; its ETag
}
