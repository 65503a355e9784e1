package resource

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

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
		return rpc.BadMessagef(field, "%s stands at %s already", address, first)
	}
	r.addresses[address] = holder
	return nil
}

func readMetadata(field string, m *corev3.Metadata) (isobar.Metadata, error) {
	out, err := MetadataOf(m)
	if err != nil {
		return "", rpc.BadMessagef(field, "%v", err)
	}
	return out, nil
}
