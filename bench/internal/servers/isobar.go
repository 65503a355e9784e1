package servers

import (
	"net"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// isobarServer is Isobar's stream layer and its views, under a plan that is
// made up: planning is measured apart.
type isobarServer struct {
	grpc    *grpc.Server
	xds     *xds.Server
	builder *view.Builder
	plan    *plan
	set     *view.Set
}

func newIsobar() *isobarServer {
	registry := prometheus.NewRegistry()
	s := &isobarServer{
		grpc:    grpc.NewServer(guarded()...),
		xds:     xds.New(xds.Options{Registerer: registry}),
		builder: view.NewBuilder(view.Options{Registerer: registry}),
		plan:    newPlan(),
	}
	xds.Register(s.grpc, s.xds, false)
	s.publish()
	return s
}

func (s *isobarServer) Serve(l net.Listener) error { return s.grpc.Serve(l) }

func (s *isobarServer) Counted() int64 { return 0 }

func (s *isobarServer) Change(cluster int) error {
	s.plan = s.plan.change(cluster)
	s.publish()
	return nil
}

func (s *isobarServer) publish() {
	s.set = s.builder.Build(s.plan, s.set)
	s.xds.Publish(s.set)
}

// plan implements view.Plan.
type plan struct {
	version uint64
	names   []string
	specs   map[string]*isobar.Service
	index   map[string]int
	zones   map[isobar.Locality]int
	given   [][fleet.Zones]*isobar.Assignment // by cluster
}

func newPlan() *plan {
	p := &plan{
		version: 1, names: fleet.Names(fleet.Clusters), specs: map[string]*isobar.Service{},
		index: map[string]int{}, zones: map[isobar.Locality]int{},
	}
	for i, n := range p.names {
		p.specs[n] = &isobar.Service{Name: n}
		p.index[n] = i
		p.given = append(p.given, fleet.Assignments(i, 0))
	}
	for z := range fleet.Zones {
		p.zones[fleet.Zone(z)] = z
	}
	return p
}

func (p *plan) change(cluster int) *plan {
	next := *p
	next.version++
	next.given = slices.Clone(p.given)
	next.given[cluster] = fleet.Assignments(cluster, int(next.version)) //nolint:gosec // few
	return &next
}

func (p *plan) VersionString() string            { return strconv.FormatUint(p.version, 10) }
func (p *plan) RequestLimit(string) uint32       { return 0 }
func (p *plan) Awaited() []isobar.Service        { return nil }
func (p *plan) ServiceNames() []string           { return p.names }
func (p *plan) Spec(name string) *isobar.Service { return p.specs[name] }
func (p *plan) Basis(string) any                 { return nil }
func (p *plan) Assignment(service string, source isobar.Locality) *isobar.Assignment {
	i, ok := p.index[service]
	if !ok {
		return nil
	}
	return p.given[i][p.zones[source]]
}
