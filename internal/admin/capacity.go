package admin

import (
	"net/http"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// CapacityList is the body of GET /v1/capacity?service=NAME: what each locality of
// a service can serve.
type CapacityList struct {
	Service    string                   `json:"service"`
	Version    string                   `json:"version"` // of the plan
	Trust      isobar.CapacityTrust     `json:"capacity_trust"`
	Localities []plan.CapacityExplained `json:"localities"`
	LeftOut    []LeftOutClient          `json:"left_out"` // clients whose requests in progress are not counted
}

// LeftOutClient is a client whose requests in progress are not counted.
type LeftOutClient struct {
	Source isobar.Locality `json:"source"`
	Node   string          `json:"node"` // node.id
	Reason string          `json:"reason"`
}

// getCapacity answers GET /v1/capacity?service=NAME.
func (s *planAPI) getCapacity(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("service")
	if name == "" {
		fail(w, http.StatusBadRequest, Problem{Error: "no service given", Place: "query", Fix: "add ?service=NAME; GET /v1/services lists the names"})
		return
	}
	p, ok := s.plan(w)
	if !ok {
		return
	}
	svc, found := p.Service(name)
	if !found {
		failUnknownService(w, name)
		return
	}
	out := CapacityList{
		Service: name, Version: p.VersionString(), Trust: svc.Spec.CapacityTrust,
		Localities: []plan.CapacityExplained{}, LeftOut: []LeftOutClient{},
	}
	if out.Trust == "" {
		out.Trust = isobar.TrustObserved
	}
	for i := range svc.Sites {
		out.Localities = append(out.Localities, svc.Site(i).Capacity())
	}
	if svc.Load != nil {
		for _, x := range svc.Load.LeftOut {
			out.LeftOut = append(out.LeftOut, LeftOutClient{Source: x.Source, Node: x.Node, Reason: string(x.Reason)})
		}
	}
	reply(w, http.StatusOK, out)
}
