package csds_test

import (
	"testing"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/csds"
)

// FuzzRequest: whatever is asked for is answered or refused as a bad argument.
func FuzzRequest(f *testing.F) {
	for _, m := range []*matcherv3.NodeMatcher{
		{}, matching(exact("x")), matching(regex(`a(b|c)*\d{2,5}`)), matching(ignoringCase(regex(")("))), matching(&matcherv3.StringMatcher{}),
		{NodeMetadatas: []*matcherv3.StructMatcher{{}}},
	} {
		data, err := proto.Marshal(&statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{m}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	server := xds.New(xds.Options{})
	f.Cleanup(server.Stop)
	service := csds.New(server)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r statusv3.ClientStatusRequest
		if proto.Unmarshal(data, &r) != nil {
			return
		}
		answer, err := service.FetchClientStatus(t.Context(), &r)
		if err != nil && status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v", err)
		}
		if err == nil && len(answer.GetConfig()) != 0 {
			t.Errorf("clients of a server without any: %v", answer)
		}
	})
}
