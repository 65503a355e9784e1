package replay

import (
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replay/deep"
)

// summer makes digests of plans that follow each other: services that stay as
// they are cost nothing.
type summer struct {
	digester deep.Digester
	last     map[*plan.Service]deep.Sum
}

// sum tells the digest of a plan without its topology, which is input, and of
// each of its services.
func (s *summer) sum(p *plan.Plan) (deep.Sum, [][8]byte, error) {
	defer s.digester.Forget()
	sums := make(map[*plan.Service]deep.Sum, len(p.Services))
	services := make([][8]byte, len(p.Services))
	whole := struct {
		Head     plan.Plan
		Services []deep.Sum
	}{*p, make([]deep.Sum, len(p.Services))}
	whole.Head.Topology, whole.Head.Services = nil, nil
	for i, service := range p.Services {
		sum, known := s.last[service]
		if !known {
			part := struct {
				Name    string
				Service plan.Service
			}{service.Spec.Name, *service}
			part.Service.Spec = nil
			var err error
			if sum, err = s.digester.Sum(&part); err != nil {
				return deep.Sum{}, nil, err
			}
		}
		sums[service], whole.Services[i] = sum, sum
		copy(services[i][:], sum[:])
	}
	s.last = sums
	sum, err := s.digester.Sum(&whole)
	return sum, services, err
}
