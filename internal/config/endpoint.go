package config

import (
	"math"
	"net/netip"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

func (r *serviceReader) endpoints(v strict.Value) []isobar.Endpoint {
	items, _ := v.List()
	out := make([]isobar.Endpoint, 0, len(items))
	var weights uint64
	for _, item := range items {
		e := r.endpoint(item)
		weights += uint64(max(1, e.Weight))
		out = append(out, e)
	}
	if weights > math.MaxUint32 {
		v.Errorf("divide all weights by the same number", "the weights add up to %d, more than clients accept (%d)", weights, uint32(math.MaxUint32))
	}
	return out
}

// endpoint reads "IP:port" or an object.
func (r *serviceReader) endpoint(v strict.Value) isobar.Endpoint {
	var e isobar.Endpoint
	if v.IsText() {
		r.address(v, &e.Address)
		return e
	}
	if !v.IsObject() {
		v.Errorf(`write "IP:port", or an object with address and more`, "is not an endpoint")
		return e
	}
	var d isobar.EndpointDetails
	v.Object([]strict.Field{
		{Name: "address", Required: true, Read: func(v strict.Value) { r.address(v, &e.Address) }},
		{Name: "weight", Read: func(v strict.Value) {
			if w, ok := v.Int(weightRange); ok {
				e.Weight = uint32(w) //nolint:gosec // within weightRange
			}
		}},
		floatField("max_rate", &e.MaxRate, rateRange),
		floatField("concurrency", &e.Concurrency, concurrencyRange),
		{Name: "health", Read: func(v strict.Value) { readHealth(v, &e.Health) }},
		{Name: "health_check_config", Read: func(v strict.Value) { e.Check = readEndpointCheck(v) }},
		hostField("hostname", &d.Hostname),
		{Name: "additional_addresses", Read: func(v strict.Value) { d.AdditionalAddresses = r.additionalAddresses(v) }},
		{Name: "metadata", Read: func(v strict.Value) { d.Metadata = r.metadata(v) }},
	})
	e.Details = detailsOrNil(d)
	return e
}

func readHealth(v strict.Value, into *isobar.HealthStatus) {
	names := make([]string, 0, isobar.Degraded+1)
	for h := isobar.Unknown; h <= isobar.Degraded; h++ {
		names = append(names, h.String())
	}
	s, ok := v.Enum(names...)
	if !ok {
		return
	}
	if h, err := isobar.ParseHealth(s); err == nil {
		*into = h
	}
}

// address reads an address in the form that Envoy accepts and stores it in
// its one canonical spelling, so that equal addresses are equal text.
func (r *serviceReader) address(v strict.Value, into *string) {
	s, ok := v.Text()
	if !ok {
		return
	}
	ap, ok := parseAddress(v, s)
	if !ok {
		return
	}
	address := ap.String()
	if line, twice := r.addresses[address]; twice {
		v.Errorf("list each endpoint once", "address %s is given twice in this service, first in line %d", address, line)
		return
	}
	r.addresses[address] = v.Pos().Line
	*into = address
}

func parseAddress(v strict.Value, s string) (netip.AddrPort, bool) {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		hint := "write it as IP:port, with an IPv6 address in brackets; names are not resolved"
		if ip, err := netip.ParseAddr(s); err == nil {
			hint = "add the port: " + netip.AddrPortFrom(ip, 8080).String() + ", for example"
		}
		v.Errorf(hint, "%q is not an address", s)
		return ap, false
	}
	ap = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	switch ip := ap.Addr(); {
	case ap.Port() == 0:
		v.Errorf("write a port from 1 to 65535", "%q has port 0", s)
	case ip.Zone() != "":
		v.Errorf("leave the %zone out: it means something on one machine only", "%q has an IPv6 zone", s)
	case ip.IsUnspecified(), ip.IsMulticast():
		v.Errorf("write the address that clients connect to", "%q can't be connected to", s)
	default:
		return ap, true
	}
	return ap, false
}

// maxAdditionalAddresses is how many addresses an endpoint may have beside its
// own: clients try them one after the other.
const maxAdditionalAddresses = 16

// additionalAddresses reads the other addresses of an endpoint, in the order of
// preference.
func (r *serviceReader) additionalAddresses(v strict.Value) []string {
	items, ok := v.List()
	if !ok {
		return nil
	}
	if len(items) > maxAdditionalAddresses {
		v.Errorf("list other endpoints by themselves", "%d addresses, more than %d", len(items), maxAdditionalAddresses)
		return nil
	}
	if len(items) > 0 && !r.warnedDual {
		r.warnedDual = true
		v.Warnf("list endpoints of their own, unless its clients try other addresses",
			"grpc-java uses additional_addresses only with GRPC_EXPERIMENTAL_XDS_DUALSTACK_ENDPOINTS=true in its environment")
	}
	var out []string
	for _, item := range items {
		var address string
		if r.address(item, &address); address != "" {
			out = append(out, address)
		}
	}
	return out
}

// metadata reads what goes to the filters of clients, by their names.
func (r *serviceReader) metadata(v strict.Value) isobar.Metadata {
	entries, ok := v.Entries()
	if !ok {
		return ""
	}
	filters := make(map[string]map[string]any, len(entries))
	for _, e := range entries {
		if !e.Value.IsObject() {
			e.Value.Errorf("write an object of what the filter is to know, for example {version: canary}", "is not an object")
			ok = false
			continue
		}
		x, good := e.Value.Any()
		filters[e.Name], _ = x.(map[string]any)
		ok = ok && good
	}
	if !ok {
		return ""
	}
	m, err := isobar.NewMetadata(filters)
	if err != nil {
		v.Errorf("keep what clients select by", "%v", err)
		return ""
	}
	if same, known := r.seen[m]; known {
		return same // many endpoints have the same: keep one text of it
	}
	r.seen[m] = m
	return m
}

// detailsOrNil spares endpoints without details the memory.
func detailsOrNil(d isobar.EndpointDetails) *isobar.EndpointDetails {
	if d.Hostname == "" && len(d.AdditionalAddresses) == 0 && d.Metadata == "" {
		return nil
	}
	return &d
}
