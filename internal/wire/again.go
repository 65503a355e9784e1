package wire

import (
	"hash/fnv"
	"math"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A grpc-js client keeps the listeners and clusters that were taken away from it
// and compares with them what it is sent: one that returns with equal content is
// no change, and calls go on failing. So what returns differs, by a mark that
// clients parse and that has no effect: the stat_prefix of a listener, and the
// limit of concurrent requests of a cluster.

// ReturnMark makes the mark of resources that return, from the version at which
// they were absent; never 0, which is no mark.
func ReturnMark(version string) uint16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(version)) // never fails
	return uint16(h.Sum32()%math.MaxUint16) + 1
}

// Remark puts a mark into a listener or a cluster; other resources have none.
func Remark(m proto.Message, mark uint16) error {
	switch m := m.(type) {
	case *listenerv3.Listener:
		manager := &hcmv3.HttpConnectionManager{}
		if err := m.GetApiListener().GetApiListener().UnmarshalTo(manager); err != nil {
			return err
		}
		manager.StatPrefix += "-" + strconv.Itoa(int(mark))
		marked, err := packed(manager)
		if err != nil {
			return err
		}
		m.ApiListener.ApiListener = marked
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
