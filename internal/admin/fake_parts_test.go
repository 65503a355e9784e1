package admin_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// jsonParser reads JSON only; it stands in for the reader of the configuration.
type jsonParser struct{}

func (jsonParser) ParseService(name string, body []byte) (isobar.Service, []admin.Problem, error) {
	var s isobar.Service
	if err := json.Unmarshal(body, &s); err != nil {
		return s, nil, &admin.InputError{Problems: []admin.Problem{
			{Error: "not a service", Place: "1:1", Fix: "write an object"},
			{Error: err.Error(), Place: "1:2", Fix: "mend it"},
		}}
	}
	if s.Name == "" {
		s.Name = name
	}
	if s.Name != name {
		return s, nil, &admin.InputError{Problems: []admin.Problem{{Error: "the name differs from the path", Place: "name", Fix: "write " + name}}}
	}
	var warnings []admin.Problem
	if s.MaxShift > 0 {
		warnings = append(warnings, admin.Problem{Error: "max_shift has no effect", Place: "1:1", Fix: "remove it"})
	}
	return s, warnings, nil
}

func (jsonParser) ParseServices(body []byte) ([]isobar.Service, []admin.Problem, error) {
	var list []isobar.Service
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, nil, &admin.InputError{Problems: []admin.Problem{{Error: err.Error(), Place: "1:1", Fix: "write a list"}}}
	}
	return list, nil, nil
}

// explain stands in for the plan's own explanation.
func explain(p *plan.Plan, name string, source isobar.Locality) (plan.Explanation, error) {
	if source.Region == "mars" {
		return plan.Explanation{}, fmt.Errorf("source %s: %w", source, isobar.ErrNotFound)
	}
	return plan.Explanation{Service: name, Source: source, Version: p.VersionString(), Summary: "everything goes to the nearest"}, nil
}

var connected = time.Unix(900, 0).UTC()

func clients() []admin.Client {
	return []admin.Client{{
		ID: "node-1", Cluster: "shop", Locality: "eu-west/a", Agent: "gRPC Go 1.85.0", Peer: "127.0.0.1:4711", ConnectedSince: connected,
		Types: map[string]admin.ClientType{"eds": {
			Subscribed: 1, SentVersion: "101", AckedVersion: "100", AgeSeconds: 3,
			NACK: &admin.NACK{Version: "101", Text: "priority gap", At: connected},
		}},
	}}
}
