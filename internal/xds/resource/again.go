package resource

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
)

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
