package resource

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
)

// Envoy takes some updates for no change and does not act on them: one in which
// only drop_overloads is different, and one in which an endpoint only turns from
// UNHEALTHY or TIMEOUT to DRAINING or back. Metadata of endpoints are compared, so
// marks in them make such an update a change: the first endpoint says how much is
// dropped, and an endpoint that drains says so. The marks are functions of what
// they repeat. They change whenever it does and never otherwise, and no client
// acts on them.
const (
	markFilter   = "isobar"        // the name in filter_metadata
	markDrop     = "drop_overload" // fraction of requests, 0 to 1
	markDraining = "draining"      // true
)

// mark is what the metadata of an endpoint say for Envoy; the zero value is nothing.
type mark struct {
	drop     float64
	draining bool
}

func (k mark) metadata() *corev3.Metadata {
	fields := map[string]*structpb.Value{}
	if k.drop > 0 {
		fields[markDrop] = structpb.NewNumberValue(k.drop)
	}
	if k.draining {
		fields[markDraining] = structpb.NewBoolValue(true)
	}
	if len(fields) == 0 {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{markFilter: {Fields: fields}}}
}

// drainingMark is the encoded mark of an endpoint that drains.
var drainingMark, _ = deterministic.Marshal(mark{draining: true}.metadata()) // no error: no field is required

// encodedMarks returns the metadata of the first endpoint, encoded: where it does
// not drain, and where it does.
func encodedMarks(p *endpointv3.ClusterLoadAssignment_Policy) (plain, draining []byte, err error) {
	drop := dropOf(p)
	if drop == 0 {
		return nil, drainingMark, nil
	}
	if plain, err = deterministic.Marshal(mark{drop: drop}.metadata()); err != nil {
		return nil, nil, err
	}
	draining, err = deterministic.Marshal(mark{drop: drop, draining: true}.metadata())
	return plain, draining, err
}

// dropOf is the fraction that a policy drops, as it is sent.
func dropOf(p *endpointv3.ClusterLoadAssignment_Policy) float64 {
	if len(p.GetDropOverloads()) == 0 {
		return 0
	}
	d := p.GetDropOverloads()[0].GetDropPercentage()
	return float64(d.GetNumerator()) / float64(denominators[d.GetDenominator()])
}

// markEndpoints adds the marks to the metadata of the endpoints.
func markEndpoints(m *endpointv3.ClusterLoadAssignment) {
	drop := dropOf(m.GetPolicy())
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			addMark(e, mark{drop, e.GetHealthStatus() == corev3.HealthStatus_DRAINING})
			drop = 0
		}
	}
}

// addMark changes no metadata in place: endpoints share them.
func addMark(e *endpointv3.LbEndpoint, k mark) {
	add := k.metadata()
	if add == nil {
		return
	}
	if e.GetMetadata() == nil {
		e.Metadata = add
		return
	}
	merged := proto.CloneOf(e.GetMetadata())
	if there := merged.GetFilterMetadata()[markFilter]; there != nil {
		proto.Merge(there, add.GetFilterMetadata()[markFilter])
	} else {
		proto.Merge(merged, add)
	}
	e.Metadata = merged
}

// unmarkEndpoints takes the marks away and reports whether there was one.
func unmarkEndpoints(m *endpointv3.ClusterLoadAssignment) bool {
	marked := false
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			plain := unmarked(e.GetMetadata())
			marked = marked || plain != e.GetMetadata()
			e.Metadata = plain
		}
	}
	return marked
}

// unmarked returns metadata without marks; nil where nothing else is in them.
func unmarked(m *corev3.Metadata) *corev3.Metadata {
	fields := m.GetFilterMetadata()[markFilter].GetFields()
	if fields[markDrop] == nil && fields[markDraining] == nil {
		return m
	}
	m = proto.CloneOf(m)
	fields = m.GetFilterMetadata()[markFilter].GetFields()
	delete(fields, markDrop)
	delete(fields, markDraining)
	if len(fields) == 0 {
		delete(m.GetFilterMetadata(), markFilter)
	}
	if len(m.GetFilterMetadata())+len(m.GetTypedFilterMetadata()) == 0 {
		return nil
	}
	return m
}

// Two kinds of gRPC clients never take back a service that was removed and
// returns as it was:
//
//   - grpc-js keeps the listeners and clusters that were removed and compares
//     with them what it is sent: equal content is no change.
//   - C-core forgets the routes when the listener goes, and waits for new ones when
//     the listener returns; but the route configuration did not go, and is no news.
//
// So what returns to them has a mark: the stat_prefix of the listener, which holds
// its routes itself, and the limit of concurrent requests of the cluster differ.
// Clients parse both, and neither has an effect.

// ReturnMark makes the mark of resources that return, from the version at which
// they were absent; never 0, which is no mark.
func ReturnMark(version string) uint16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(version)) // never fails
	return uint16(h.Sum32()%math.MaxUint16) + 1
}

// Remark puts a mark into a listener or a cluster of a service, made for a name;
// other resources have none.
func Remark(m proto.Message, s *isobar.Service, name string, mark uint16) error {
	switch m := m.(type) {
	case *listenerv3.Listener:
		return remarkListener(m, s, name, mark)
	case *clusterv3.Cluster:
		for _, t := range m.GetCircuitBreakers().GetThresholds() {
			limit := t.GetMaxRequests().GetValue() + 1
			if limit == 0 { // no limit
				limit = math.MaxUint32 - uint32(mark)
			}
			t.MaxRequests = wrapperspb.UInt32(limit)
		}
	}
	return nil
}

func remarkListener(l *listenerv3.Listener, s *isobar.Service, name string, mark uint16) error {
	manager := &hcmv3.HttpConnectionManager{}
	if err := l.GetApiListener().GetApiListener().UnmarshalTo(manager); err != nil {
		return fmt.Errorf("mark the listener of %q: %w", s.Name, err)
	}
	routes, err := routeOf(s, name)
	if err != nil {
		return err
	}
	manager.StatPrefix += "-" + strconv.Itoa(int(mark))
	manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes}
	l.ApiListener.ApiListener, err = Packed(manager)
	return err
}
