package config

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

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
