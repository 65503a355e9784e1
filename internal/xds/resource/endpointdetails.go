package resource

import (
	"fmt"
	"math"
	"net/netip"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// What is sent of an endpoint beside address, weight and health.

const (
	maxHostname            = 255      // bytes: the longest name that DNS has
	maxAdditionalAddresses = 16       // of an endpoint: clients try one after the other
	maxMetadataBytes       = 64 << 10 // encoded; numbers take more bytes than in JSON
)

// metadataCache holds the metadata of one assignment: many endpoints have the
// same. Messages that share them must not be changed.
type metadataCache map[isobar.Metadata]*corev3.Metadata

func (c metadataCache) of(m isobar.Metadata) (*corev3.Metadata, error) {
	if m == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	if out, known := c[m]; known {
		return out, nil
	}
	filters, err := m.Filters()
	if err != nil {
		return nil, rpc.Refusedf("metadata", "%v", err)
	}
	out := &corev3.Metadata{FilterMetadata: make(map[string]*structpb.Struct, len(filters))}
	for name, fields := range filters {
		s, err := structpb.NewStruct(fields)
		if err != nil {
			return nil, rpc.Refusedf("metadata.filter_metadata", "%v", err)
		}
		out.FilterMetadata[name] = s
	}
	c[m] = out
	return out, nil
}

// metadataOf reads what metadata of another control plane say to filters.
// typed_filter_metadata, which only the same build understands, are left out,
// and so are the marks of another Isobar. Errors wrap isobar.ErrBadMetadata.
func metadataOf(m *corev3.Metadata) (isobar.Metadata, error) {
	m = unmarked(m)
	filters := make(map[string]map[string]any, len(m.GetFilterMetadata()))
	for name, s := range m.GetFilterMetadata() {
		if depth := structDepth(s, isobar.MaxMetadataDepth); depth > isobar.MaxMetadataDepth {
			return "", fmt.Errorf("%w: nested deeper than %d levels", isobar.ErrBadMetadata, isobar.MaxMetadataDepth)
		}
		filters[name] = s.AsMap()
	}
	return isobar.NewMetadata(filters)
}

// structDepth counts the levels of objects and lists, up to one more than most.
func structDepth(s *structpb.Struct, most int) int {
	deepest := 0
	if most > 0 {
		for _, v := range s.GetFields() {
			deepest = max(deepest, valueDepth(v, most-1))
		}
	}
	return deepest + 1
}

func valueDepth(v *structpb.Value, most int) int {
	switch v := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		return structDepth(v.StructValue, most)
	case *structpb.Value_ListValue:
		deepest := 0
		if most > 0 {
			for _, x := range v.ListValue.GetValues() {
				deepest = max(deepest, valueDepth(x, most-1))
			}
		}
		return deepest + 1
	default:
		return 0
	}
}

// addDetails adds what the configuration of an endpoint says. port is that of
// its address.
func addDetails(out *endpointv3.LbEndpoint, e *isobar.Endpoint, port uint16, shared metadataCache) error {
	endpoint := out.GetEndpoint()
	if e.Check != nil {
		c := EndpointCheckOf(e.Check, port)
		if e.Check.Disabled {
			if c == nil {
				c = &endpointv3.Endpoint_HealthCheckConfig{}
			}
			c.DisableActiveHealthCheck = true
		}
		endpoint.HealthCheckConfig = c
	}
	d := e.Details
	if d == nil {
		return nil
	}
	endpoint.Hostname = d.Hostname
	for _, address := range d.AdditionalAddresses {
		at, err := netip.ParseAddrPort(address)
		if err != nil || at.Port() == 0 {
			return rpc.Refusedf("additional_addresses", "%.100q, want an IP address and a port", address)
		}
		endpoint.AdditionalAddresses = append(endpoint.AdditionalAddresses,
			&endpointv3.Endpoint_AdditionalAddress{Address: SocketAddressOf(at.Addr().String(), at.Port())})
	}
	var err error
	out.Metadata, err = shared.of(d.Metadata)
	return err
}

// details holds what an endpoint has beside address, weight and health against
// the rules of all clients.
func (c *assignmentCheck) details(e *endpointv3.LbEndpoint) error {
	endpoint := e.GetEndpoint()
	if err := checkHostname("endpoint.hostname", endpoint.GetHostname()); err != nil {
		return err
	}
	if n := len(endpoint.GetAdditionalAddresses()); n > maxAdditionalAddresses {
		return rpc.Refusedf("endpoint.additional_addresses", "%d addresses, want at most %d", n, maxAdditionalAddresses)
	}
	for i, more := range endpoint.GetAdditionalAddresses() {
		c.at.additional = i
		if err := c.address(more.GetAddress()); err != nil {
			return rpc.Within(err, "endpoint.additional_addresses[%d]", i)
		}
	}
	if err := checkEndpointCheck(endpoint.GetHealthCheckConfig()); err != nil {
		return rpc.Within(err, "endpoint.health_check_config")
	}
	return c.metadata(e.GetMetadata())
}

func checkHostname(field, name string) error {
	if len(name) > maxHostname {
		return rpc.Refusedf(field, "%d bytes, want at most %d", len(name), maxHostname)
	}
	for _, r := range name {
		if r <= ' ' || r >= 0x7f {
			return rpc.Refusedf(field, "%q holds blanks, control characters or others than ASCII", name)
		}
	}
	return nil
}

func checkEndpointCheck(c *endpointv3.Endpoint_HealthCheckConfig) error {
	if p := c.GetPortValue(); p > math.MaxUint16 {
		return rpc.Refusedf("port_value", "%d, want at most %d", p, math.MaxUint16)
	}
	if err := checkHostname("hostname", c.GetHostname()); err != nil {
		return err
	}
	if c.GetAddress() == nil {
		return nil
	}
	if _, err := sentAddress(c.GetAddress()); err != nil {
		return rpc.Within(err, "address")
	}
	return nil
}

// metadata bounds what clients have to decode; each message once, where
// endpoints share it.
func (c *assignmentCheck) metadata(m *corev3.Metadata) error {
	if m == nil || c.checked[m] {
		return nil
	}
	if n := proto.Size(m); n > maxMetadataBytes {
		return rpc.Refusedf("metadata", "%d bytes, want at most %d", n, maxMetadataBytes)
	}
	for name, s := range m.GetFilterMetadata() {
		switch {
		case name == "" || !utf8.ValidString(name):
			return rpc.Refusedf("metadata.filter_metadata", "%.100q is not the name of a filter", name)
		case structDepth(s, isobar.MaxMetadataDepth) > isobar.MaxMetadataDepth:
			return rpc.Refusedf("metadata.filter_metadata", "%.100q is nested deeper than %d levels", name, isobar.MaxMetadataDepth)
		}
	}
	c.checked[m] = true
	return nil
}

// EndpointCheckOf says how the probes of one endpoint differ, as long as they
// do; nil when they don't. port is the endpoint's own.
func EndpointCheckOf(check *isobar.EndpointCheck, port uint16) *endpointv3.Endpoint_HealthCheckConfig {
	c := &endpointv3.Endpoint_HealthCheckConfig{Hostname: check.Hostname}
	if check.Port != 0 {
		port = check.Port
		c.PortValue = uint32(port)
	}
	if check.Address != "" {
		c.Address = SocketAddressOf(check.Address, port)
	}
	if proto.Size(c) == 0 {
		return nil
	}
	return c
}

// SocketAddressOf returns the address of a TCP socket.
func SocketAddressOf(ip string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}
