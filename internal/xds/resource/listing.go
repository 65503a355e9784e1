package resource

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Bounds on what another control plane may list for one service. Plans take
// memory for all of it.
const (
	maxListedLocalities = 512
	maxListedEndpoints  = 30_000
)

// Listing is what another control plane lists for a service: endpoints by
// locality, with their health and weights. Its weights of localities, its
// priorities and its drops are not in it.
type Listing struct {
	Localities []isobar.ServiceLocality // sorted, unique, none empty; Locality and Endpoints alone are set
	Endpoints  int
	LeftOut    int    // endpoints that nothing here can use
	Reason     string // of the first that was left out, with its field
}

// ReadListing holds an assignment of another control plane against the rules
// that hold for what is configured here, and converts it. Endpoints without a
// locality are put into fallback, unless that is zero. Endpoints that have no
// IP address are left out if others remain; every other fault refuses the
// assignment. Errors wrap ErrMessage and name the field.
func ReadListing(m *endpointv3.ClusterLoadAssignment, fallback isobar.Locality) (Listing, error) {
	r := listingReader{fallback: fallback, at: map[isobar.Locality]int{}, addresses: map[string]string{}, weights: map[isobar.Locality]uint64{}}
	for i, l := range m.GetEndpoints() {
		if err := r.locality(fmt.Sprintf("endpoints[%d]", i), l); err != nil {
			return Listing{}, err
		}
	}
	if r.out.Endpoints == 0 && r.out.LeftOut > 0 {
		return Listing{}, rpc.BadMessagef("endpoints", "none of %d can be used; %s", r.out.LeftOut, r.out.Reason)
	}
	slices.SortFunc(r.out.Localities, func(a, b isobar.ServiceLocality) int { return a.Locality.Compare(b.Locality) })
	return r.out, nil
}

// listingReader reads one assignment.
type listingReader struct {
	out       Listing
	fallback  isobar.Locality
	at        map[isobar.Locality]int    // index in out
	addresses map[string]string          // field of each, which have to be unique
	weights   map[isobar.Locality]uint64 // sums of the endpoints'
}

func (r *listingReader) locality(field string, l *endpointv3.LocalityLbEndpoints) error {
	if l.GetPriority() > maxPriority {
		return rpc.BadMessagef(field+".priority", "%d, want at most %d", l.GetPriority(), maxPriority)
	}
	if w := l.GetLoadBalancingWeight(); w != nil && w.GetValue() == 0 {
		return rpc.BadMessagef(field+".load_balancing_weight", "0, want at least 1 or none")
	}
	if l.GetLbConfig() != nil {
		return rpc.BadMessagef(field, "its endpoints come over LEDS, which is not understood here")
	}
	if len(l.GetLbEndpoints()) == 0 {
		return nil
	}
	where, err := r.place(field+".locality", l.GetLocality())
	if err != nil {
		return err
	}
	for i, e := range l.GetLbEndpoints() {
		if err := r.endpoint(fmt.Sprintf("%s.lb_endpoints[%d]", field, i), where, e); err != nil {
			return err
		}
	}
	return nil
}

func (r *listingReader) place(field string, l *corev3.Locality) (isobar.Locality, error) {
	where := isobar.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
	if where.IsZero() {
		if r.fallback.IsZero() {
			return where, rpc.BadMessagef(field, "not set, and no default_locality is configured")
		}
		return r.fallback, nil
	}
	for _, part := range []string{where.Region, where.Zone, where.SubZone} {
		if len(part) > rpc.MaxLocalityName {
			return where, rpc.BadMessagef(field, "a part is %d bytes long, want at most %d", len(part), rpc.MaxLocalityName)
		}
		if strings.ContainsFunc(part, func(c rune) bool { return !unicode.IsPrint(c) }) {
			return where, rpc.BadMessagef(field, "%.100q holds what can't be printed", part)
		}
	}
	return where, nil
}

func (r *listingReader) endpoint(field string, where isobar.Locality, e *endpointv3.LbEndpoint) error {
	out := isobar.Endpoint{Weight: e.GetLoadBalancingWeight().GetValue()}
	if e.GetLoadBalancingWeight() != nil && out.Weight == 0 {
		return rpc.BadMessagef(field+".load_balancing_weight", "0, want at least 1 or none")
	}
	if h := e.GetHealthStatus(); h < 0 || h > corev3.HealthStatus(isobar.Degraded) {
		return rpc.BadMessagef(field+".health_status", "%d is no health status", h)
	}
	out.Health = isobar.HealthStatus(e.GetHealthStatus()) //nolint:gosec // checked above
	if r.out.Endpoints+r.out.LeftOut == maxListedEndpoints {
		return rpc.BadMessagef("endpoints", "more than %d endpoints", maxListedEndpoints)
	}
	socket, why := socketOf(e)
	if why != "" {
		if r.out.LeftOut == 0 {
			r.out.Reason = field + ": " + why
		}
		r.out.LeftOut++
		return nil
	}
	address, err := connectable(field+".endpoint.address", socket)
	if err != nil {
		return err
	}
	if err := r.claim(field+".endpoint.address", field, address); err != nil {
		return err
	}
	r.weights[where] += uint64(max(1, out.Weight))
	if r.weights[where] > math.MaxUint32 {
		return rpc.BadMessagef(field+".load_balancing_weight", "the weights of the endpoints in %s sum to 2^32 or more", where)
	}
	out.Address = address
	if out.Check, err = probeOf(field+".endpoint.health_check_config", e.GetEndpoint().GetHealthCheckConfig()); err != nil {
		return err
	}
	if out.Details, err = r.details(field, e); err != nil {
		return err
	}
	return r.add(where, out)
}

func (r *listingReader) add(where isobar.Locality, e isobar.Endpoint) error {
	i, known := r.at[where]
	if !known {
		if i = len(r.out.Localities); i == maxListedLocalities {
			return rpc.BadMessagef("endpoints", "more than %d localities", maxListedLocalities)
		}
		r.at[where] = i
		r.out.Localities = append(r.out.Localities, isobar.ServiceLocality{Locality: where})
	}
	l := &r.out.Localities[i]
	l.Endpoints = append(l.Endpoints, e)
	r.out.Endpoints++
	return nil
}

// socketOf returns the TCP socket with an IP address that an endpoint has, or why
// it has none.
func socketOf(e *endpointv3.LbEndpoint) (_ *corev3.SocketAddress, why string) {
	if name := e.GetEndpointName(); name != "" {
		return nil, fmt.Sprintf("the endpoint is only named, %.100q", name)
	}
	return socketAt(e.GetEndpoint().GetAddress())
}

func socketAt(a *corev3.Address) (_ *corev3.SocketAddress, why string) {
	s := a.GetSocketAddress()
	switch {
	case s == nil:
		return nil, "the address is no socket address"
	case s.GetProtocol() != corev3.SocketAddress_TCP:
		return nil, "the socket is not TCP"
	case s.GetNamedPort() != "":
		return nil, fmt.Sprintf("the port is only named, %.100q", s.GetNamedPort())
	}
	if _, err := netip.ParseAddr(s.GetAddress()); err != nil {
		return nil, fmt.Sprintf("%.100q is not an IP address; names are not resolved here", s.GetAddress())
	}
	return s, ""
}

// connectable returns an address in the one spelling that it has everywhere here.
func connectable(field string, s *corev3.SocketAddress) (string, error) {
	ip, err := netip.ParseAddr(s.GetAddress())
	if ip = ip.Unmap(); err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
		return "", rpc.BadMessagef(field, "%.100q is no IP address that clients can connect to", s.GetAddress())
	}
	port := s.GetPortValue()
	if port == 0 || port > math.MaxUint16 {
		return "", rpc.BadMessagef(field, "port %d, want 1 to %d", port, math.MaxUint16)
	}
	return netip.AddrPortFrom(ip, uint16(port)).String(), nil
}

// probeOf returns how probes of an endpoint differ; nil where they don't.
func probeOf(field string, c *endpointv3.Endpoint_HealthCheckConfig) (*isobar.EndpointCheck, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // no difference is what nil says
	}
	if c.GetPortValue() > math.MaxUint16 {
		return nil, rpc.BadMessagef(field+".port_value", "%d, want at most %d", c.GetPortValue(), math.MaxUint16)
	}
	if len(c.GetHostname()) > rpc.MaxLocalityName || strings.ContainsFunc(c.GetHostname(), func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }) {
		return nil, rpc.BadMessagef(field+".hostname", "%.100q is not a host name", c.GetHostname())
	}
	out := isobar.EndpointCheck{
		Port:     uint16(c.GetPortValue()), //nolint:gosec // checked above
		Hostname: c.GetHostname(), Disabled: c.GetDisableActiveHealthCheck(),
	}
	if c.GetAddress() != nil {
		ip, err := netip.ParseAddr(c.GetAddress().GetSocketAddress().GetAddress())
		if err != nil || ip.Zone() != "" {
			return nil, rpc.BadMessagef(field+".address", "%.100q is not an IP address without zone", c.GetAddress().GetSocketAddress().GetAddress())
		}
		out.Address = ip.Unmap().String()
		if port := c.GetAddress().GetSocketAddress().GetPortValue(); out.Port == 0 && port <= math.MaxUint16 {
			out.Port = uint16(port)
		}
	}
	if out == (isobar.EndpointCheck{}) {
		return nil, nil //nolint:nilnil // as above
	}
	return &out, nil
}

// details reads what another control plane says of an endpoint beside address,
// weight and health; nil for nothing. Additional addresses that nothing here
// can use are left out.
func (r *listingReader) details(field string, e *endpointv3.LbEndpoint) (*isobar.EndpointDetails, error) {
	out := isobar.EndpointDetails{Hostname: e.GetEndpoint().GetHostname()}
	if checkHostname("", out.Hostname) != nil {
		return nil, rpc.BadMessagef(field+".endpoint.hostname", "%.100q is not a host name", out.Hostname)
	}
	for i, more := range e.GetEndpoint().GetAdditionalAddresses() {
		socket, why := socketAt(more.GetAddress())
		if why != "" {
			continue
		}
		at := fmt.Sprintf("%s.endpoint.additional_addresses[%d]", field, i)
		if len(out.AdditionalAddresses) == maxAdditionalAddresses {
			return nil, rpc.BadMessagef(at, "more than %d addresses", maxAdditionalAddresses)
		}
		address, err := connectable(at, socket)
		if err != nil {
			return nil, err
		}
		if err := r.claim(at, at, address); err != nil {
			return nil, err
		}
		out.AdditionalAddresses = append(out.AdditionalAddresses, address)
	}
	var err error
	if out.Metadata, err = readMetadata(field+".metadata", e.GetMetadata()); err != nil {
		return nil, err
	}
	if out.Hostname == "" && out.AdditionalAddresses == nil && out.Metadata == "" {
		return nil, nil //nolint:nilnil // nothing is what nil says
	}
	return &out, nil
}

// claim refuses an address that stands elsewhere, and notes that it stands at
// holder.
func (r *listingReader) claim(field, holder, address string) error {
	if first, twice := r.addresses[address]; twice {
		return rpc.BadMessagef(field, "%s is already at %s", address, first)
	}
	r.addresses[address] = holder
	return nil
}

func readMetadata(field string, m *corev3.Metadata) (isobar.Metadata, error) {
	out, err := metadataOf(m)
	if err != nil {
		return "", rpc.BadMessagef(field, "%v", err)
	}
	return out, nil
}
