package resource

import (
	"encoding/json"
	"fmt"
	"math"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// JSON gives an encoded resource as JSON, with its type under "@type"
// and the field names of the proto files, as old clients want them. It must not
// be one with a TTL.
func JSON(form rpc.APIVersion, r *Encoded) ([]byte, error) {
	body := &anypb.Any{}
	if err := proto.Unmarshal(r.Body, body); err != nil {
		return nil, fmt.Errorf("resource %q: %w", r.Name, err)
	}
	out, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("resource %q: %w", r.Name, err)
	}
	if form == rpc.V2017 && body.GetTypeUrl() == EndpointsURLv2 {
		return withDrop2017(out, body.GetValue())
	}
	return out, nil
}

// withDrop2017 adds the one field that none of the types we have can say.
func withDrop2017(object, encoded []byte) ([]byte, error) {
	m := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(encoded, m); err != nil {
		return nil, err
	}
	raw := m.GetPolicy().ProtoReflect().GetUnknown()
	if len(raw) == 0 {
		return object, nil
	}
	_, _, n := protowire.ConsumeTag(raw)
	percent, k := protowire.ConsumeFixed64(raw[max(n, 0):])
	if n < 0 || k < 0 {
		return nil, fmt.Errorf("resource %q: the API of 2017 has no such policy", m.GetClusterName())
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	policy, err := json.Marshal(map[string]float64{"drop_overload": math.Float64frombits(percent)})
	if err != nil {
		return nil, err
	}
	fields["policy"] = policy
	return json.Marshal(fields)
}
