package interop

import (
	"context"
	"errors"
	"io"
	"net"
	"path"
	"slices"
	"sync"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// tap passes every stream of a client on to Isobar as the bytes that it is,
// and notes what the client sends.
type tap struct {
	address string
	isobar  *grpc.ClientConn

	mu   sync.Mutex
	sent map[string][][]byte // by the name of the method; cut off at maxTapped messages
	// edit changes the assignments that come from Isobar; nil changes nothing.
	edit func(*endpointv3.ClusterLoadAssignment)
}

// maxTapped is how many messages of a method are kept.
const maxTapped = 10_000

func startTap(t *testing.T, isobar string) *tap {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &tap{address: lis.Addr().String(), sent: map[string][][]byte{}}
	r.isobar, err = grpc.NewClient(isobar, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rpc.ServerCodec())))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.ForceServerCodecV2(rpc.ServerCodec()), grpc.UnknownServiceHandler(r.stream))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(lis) // ends with Stop
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
		_ = r.isobar.Close()
	})
	return r
}

// stream passes one stream on until one of its ends ends.
func (r *tap) stream(_ any, down grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(down)
	if !ok {
		return errors.New("a stream without a method")
	}
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := r.isobar.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() { // ends when the handler has returned: RecvMsg fails then
		defer cancel()
		for {
			var m rpc.RawMessage
			if err := down.RecvMsg(&m); err != nil {
				if errors.Is(err, io.EOF) {
					_ = up.CloseSend()
				}
				return
			}
			r.note(path.Base(method), m.Data)
			if up.SendMsg(frame(m.Data)) != nil {
				return
			}
		}
	}()
	for {
		var m rpc.RawMessage
		if err := up.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		data, err := r.response(path.Base(method), m.Data)
		if err != nil {
			return err
		}
		if err := down.SendMsg(frame(data)); err != nil {
			return err
		}
	}
}

func frame(data []byte) *rpc.Frame {
	return &rpc.Frame{Pieces: mem.BufferSlice{mem.SliceBuffer(data)}}
}

func (r *tap) note(method string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sent[method]) < maxTapped {
		r.sent[method] = append(r.sent[method], data)
	}
}

// messages returns what the client has sent to a method.
func (r *tap) messages(method string) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent[method])
}

// reports returns the load reports from the n-th message on.
func (r *tap) reports(t *testing.T, n int) []*loadstatsv3.LoadStatsRequest {
	t.Helper()
	var out []*loadstatsv3.LoadStatsRequest
	all := r.messages("StreamLoadStats")
	for _, data := range all[min(n, len(all)):] {
		m := &loadstatsv3.LoadStatsRequest{}
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// setEdit changes what is done to assignments that come from now on.
func (r *tap) setEdit(edit func(*endpointv3.ClusterLoadAssignment)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.edit = edit
}

// response applies the edit to the assignments of a discovery response.
func (r *tap) response(method string, data []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.edit == nil {
		return data, nil
	}
	switch method {
	case "StreamAggregatedResources", "StreamEndpoints":
		var m discoveryv3.DiscoveryResponse
		if err := proto.Unmarshal(data, &m); err != nil || m.GetTypeUrl() != endpointsURL {
			return data, err
		}
		for _, res := range m.GetResources() {
			if err := r.change(res); err != nil {
				return nil, err
			}
		}
		return proto.Marshal(&m)
	case "DeltaAggregatedResources", "DeltaEndpoints":
		var m discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(data, &m); err != nil || m.GetTypeUrl() != endpointsURL {
			return data, err
		}
		for _, res := range m.GetResources() {
			if err := r.change(res.GetResource()); err != nil {
				return nil, err
			}
		}
		return proto.Marshal(&m)
	}
	return data, nil
}

func (r *tap) change(res *anypb.Any) error {
	var a endpointv3.ClusterLoadAssignment
	if err := res.UnmarshalTo(&a); err != nil {
		return err
	}
	r.edit(&a)
	return res.MarshalFrom(&a)
}
