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

// kept is a reader that keeps what it is lent.
type kept struct {
	skips protowire.Number
	read  []byte
}

func (k *kept) Skips() protowire.Number { return k.skips }

func (k *kept) ReadMessage(encoded []byte) error {
	k.read = bytes.Clone(encoded)
	return nil
}

// sized is a reader that keeps how much it was told to come.
type sized struct {
	kept

	size int
}

func (s *sized) Size(bytes int) { s.size = bytes }

func (s *sized) Wait() error {
	if s.size == 0 {
		return errors.New("it waits before it knows its size")
	}
	return nil
}

// TestSizeBeforeWaiting asserts that a reader learns the size of its message before it waits.
func TestSizeBeforeWaiting(t *testing.T) {
	data := mem.BufferSlice{mem.SliceBuffer("abc"), mem.SliceBuffer("de")}
	var s sized
	if err := rpc.ServerCodec().Unmarshal(data, &s); err != nil || s.size != 5 || string(s.read) != "abcde" {
		t.Errorf("told of %d bytes, read %q: %v", s.size, s.read, err)
	}
}

// TestSkippedField: wherever a message is cut into pieces, a reader gets all of
// it but the field that it skips, and all of what does not begin with that field
// or is cut off.
func TestSkippedField(t *testing.T) {
	node := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), bytes.Repeat([]byte("n"), 200))
	rest := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte("cluster"))
	for name, test := range map[string]struct {
		message, want []byte
		skips         protowire.Number
	}{
		"skipped":        {append(bytes.Clone(node), rest...), rest, 1},
		"nothing else":   {node, nil, 1},
		"not asked for":  {append(bytes.Clone(node), rest...), append(bytes.Clone(node), rest...), 0},
		"not first":      {append(bytes.Clone(rest), node...), append(bytes.Clone(rest), node...), 1},
		"twice":          {append(bytes.Clone(node), node...), node, 1},
		"cut off":        {node[:100], node[:100], 1},
		"length cut off": {node[:1], node[:1], 1},
		"other type":     {[]byte{1 << 3, 5}, []byte{1 << 3, 5}, 1},
		"empty":          {nil, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for first := range len(test.message) + 1 {
				for second := first; second <= len(test.message); second += 1 + len(test.message)/7 {
					data := mem.BufferSlice{mem.SliceBuffer(test.message[:first]), mem.SliceBuffer(test.message[first:second]), mem.SliceBuffer(test.message[second:])}
					if first == 0 { // gRPC has no empty pieces
						data = data[1:]
					}
					k := &kept{skips: test.skips}
					if err := rpc.ServerCodec().Unmarshal(data, k); err != nil {
						t.Fatal(err)
					}
					// Where the head of the field is cut apart, all of it may come.
					if !bytes.Equal(k.read, test.want) && (first > 3 || !bytes.Equal(k.read, test.message)) {
						t.Fatalf("cut at %d and %d: read %x, want %x", first, second, k.read, test.want)
					}
				}
			}
		})
	}
}

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
