package isobar

import (
	"encoding/json"
	"slices"
)

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

// Equal tells whether clients get the same of both endpoints.
func (e *WeightedEndpoint) Equal(o *WeightedEndpoint) bool {
	return e.Address == o.Address && e.Weight == o.Weight && e.Health == o.Health && sameDetails(e.Config, o.Config)
}

// Equal tells whether clients get the same of both groups.
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
