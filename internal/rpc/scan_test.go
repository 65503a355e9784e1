package rpc_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// Messages of two bytes each must not be decoded by the million: 4 MiB of them
// took 400 MiB of memory and more than a second.
func TestLargeMessagesAreScannedFirst(t *testing.T) {
	field := func(n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), value)
	}
	empty := func(n protowire.Number, times int) []byte { return bytes.Repeat(field(n, nil), times) }
	deep := []byte{}
	for range 200 {
		deep = field(5, field(1, field(2, deep))) // a list in a list in a struct
	}
	honest := &loadstatsv3.LoadStatsRequest{}
	for range 20_000 {
		honest.ClusterStats = append(honest.ClusterStats, &endpointv3.ClusterStats{
			ClusterName: strings.Repeat("x", 20), UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{TotalIssuedRequests: 7}},
		})
	}
	report, err := proto.Marshal(honest)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		data []byte
		into proto.Message
		says string // "" = it is taken
	}{
		{"clusters", empty(2, 2<<20), &loadstatsv3.LoadStatsRequest{}, "more than 250000 messages"},
		{"localities of a cluster", field(2, empty(2, 2<<20)), &loadstatsv3.LoadStatsRequest{}, "more than 250000 messages"},
		{"locators", empty(7, 2<<20), &discoveryv3.DiscoveryRequest{}, "more than 250000 messages"},
		{"names", empty(3, 2<<20), &discoveryv3.DiscoveryRequest{}, "more than 250000 messages and list entries"},
		{"nesting", append(field(99, make([]byte, 64<<10)), deep...), &structpb.Value{}, "nested more than 100"},
		{"garbage", bytes.Repeat([]byte{0xff}, 65<<10), &discoveryv3.DiscoveryRequest{}, "overflow"},
		{"a large report", report, &loadstatsv3.LoadStatsRequest{}, ""},
		{"in pieces, names", field(3, make([]byte, 1<<20)), &discoveryv3.DiscoveryRequest{}, ""},
	} {
		pieces := mem.BufferSlice{}
		for rest := tc.data; len(rest) > 0; {
			n := min(len(rest), 50_000)
			pieces = append(pieces, mem.SliceBuffer(rest[:n]))
			rest = rest[n:]
		}
		err := rpc.ServerCodec().Unmarshal(pieces, tc.into)
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.says == "":
			if got, err := proto.Marshal(tc.into); err != nil || !bytes.Equal(got, tc.data) {
				t.Errorf("%s: decoded to something else: %v", tc.name, err)
			}
		case err == nil || !strings.Contains(err.Error(), tc.says):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.says)
		case tc.name != "garbage" && !errors.Is(err, rpc.ErrMessage):
			t.Errorf("%s: %v does not wrap ErrMessage", tc.name, err)
		}
	}
}
