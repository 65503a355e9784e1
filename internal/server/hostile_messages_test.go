package server_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// many returns so many names, all different.
func many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("service-%06d", i)
	}
	return out
}

// repeated is a message of so many equal fields.
func repeated(number protowire.Number, body []byte, n int) []byte {
	one := protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
	return bytes.Repeat(one, n)
}

// nested is a node's metadata, a struct in a struct that often.
func nested(depth int) []byte {
	wrap := func(number protowire.Number, b []byte) []byte { return repeated(number, b, 1) }
	var out []byte
	for range depth {
		out = wrap(1, wrap(2, wrap(5, out)))
	}
	return wrap(2, wrap(3, out))
}

// TestLargeMessages: messages of a size that no client needs are refused with
// the limit, none makes the server allocate out of proportion, and others are
// served.
func TestLargeMessages(t *testing.T) {
	const mostAllocated = 100 << 20 // bytes for one message, all copies of both ends together
	inSweep(t, func(w *sweepWorld) {
		hello := func(m *loadstatsv3.LoadStatsRequest) []byte {
			m.Node = nodeIn("large", "us/a")
			return w.encode(m)
		}
		clusters := make([]*endpointv3.ClusterStats, 20_001)
		for i := range clusters {
			clusters[i] = &endpointv3.ClusterStats{ClusterName: fmt.Sprintf("cluster-%06d", i), UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
				Locality: &corev3.Locality{Region: "us", Zone: "a"}, TotalIssuedRequests: 1,
			}}}
		}
		for _, x := range []struct {
			name, method string
			message      []byte
			code         codes.Code // OK = taken
			says         string
		}{
			{"100,000 names", sotwMethod, w.encode(&discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNames: many(100_000)}), codes.InvalidArgument, "resource_names: 100000 names, want at most 20000"},
			{"20,000 names", sotwMethod, w.encode(&discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNames: many(20_000)}), codes.OK, ""},
			{"100,000 names to subscribe", deltaMethod, w.encode(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNamesSubscribe: many(100_000)}), codes.InvalidArgument, "100000 names"},
			{"100,000 versions", deltaMethod, w.encode(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, InitialResourceVersions: versions(100_000)}), codes.InvalidArgument, "initial_resource_versions: 100000"},
			{"two million empty names", sotwMethod, repeated(3, nil, 2_000_000), codes.Internal, "list entries"},
			{"an empty locator, two million times", sotwMethod, repeated(7, nil, 2_000_000), codes.Internal, ""},
			{"more than 4 MiB", sotwMethod, repeated(3, make([]byte, 1000), 5_000), codes.ResourceExhausted, "larger than max"},
			{"a report of 20,001 clusters", lrsMethod, hello(&loadstatsv3.LoadStatsRequest{ClusterStats: clusters}), codes.InvalidArgument, "cluster_stats: 20001 clusters"},
			{"a report of a million empty clusters", lrsMethod, append(hello(&loadstatsv3.LoadStatsRequest{}), repeated(2, nil, 1_000_000)...), codes.InvalidArgument, "1000000 clusters"},
			{"a report of 4 MiB without sense", lrsMethod, append(hello(&loadstatsv3.LoadStatsRequest{}), repeated(2, make([]byte, 100), 40_000)...), codes.InvalidArgument, "40000 clusters"},
			{"metadata nested 1,000 deep", sotwMethod, append(nested(1000), w.encode(&discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNames: []string{"checkout"}})...), codes.OK, ""},
			{"metadata nested 8,000 deep", sotwMethod, nested(8000), codes.Internal, "nested"},
			{"a checker's million endpoints", hdsMethod, repeated(2, repeated(1, nil, 1_000_000), 1), codes.InvalidArgument, ""},
		} {
			s := w.open(x.method)
			before := allocated()
			s.send(x.message)
			took := allocated() - before
			st := status.Convert(s.err)
			if st.Code() != x.code || !strings.Contains(st.Message(), x.says) {
				t.Errorf("%s: %v: %.300s; want %v with %q", x.name, st.Code(), st.Message(), x.code, x.says)
			}
			if took > mostAllocated {
				t.Errorf("%s: %d MiB were allocated for a message of %d KiB", x.name, took>>20, len(x.message)>>10)
			}
			s.close()
			w.alive(x.name)
		}
	})
}

func versions(n int) map[string]string {
	out := make(map[string]string, n)
	for _, name := range many(n) {
		out[name] = "1"
	}
	return out
}

// allocated is how many bytes were allocated ever.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestFloodOfNacks: a client that rejects again and again is sent nothing for
// it, fills no log, and delays nobody.
func TestFloodOfNacks(t *testing.T) {
	const nacks = 5_000
	inSweep(t, func(w *sweepWorld) {
		s := w.open(sotwMethod)
		s.send(w.encode(&discoveryv3.DiscoveryRequest{Node: nodeIn("picky", "us/a"), TypeUrl: resource.EndpointsURL, ResourceNames: []string{"checkout"}}))
		nonce := s.nonce()
		for i := range nacks {
			r := &discoveryv3.DiscoveryRequest{
				TypeUrl: resource.EndpointsURL, ResourceNames: []string{"checkout"}, ResponseNonce: nonce,
				ErrorDetail: &statuspb.Status{Code: 3, Message: strings.Repeat("no ", 1+i%2_000)},
			}
			if i%3 == 0 {
				r.ResponseNonce = fmt.Sprint("made-up-", i)
			}
			s.send(w.encode(r))
			if i%500 == 0 {
				w.alive("during the flood")
			}
		}
		if s.answers() != 1 || s.err != nil {
			t.Errorf("%d responses to %d rejections, %v", s.answers(), nacks, s.err)
		}
		if n := strings.Count(w.log.String(), "\n"); n > 100 || len(w.log.String()) > 100_000 {
			t.Errorf("%d lines in the log", n)
		}
		s.close()
	})
}

// TestDuplicateNodes: clients that call themselves the same, even in different
// places, are served each by itself, and operators see all of them.
func TestDuplicateNodes(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		var all []*sweepStream
		for i := range 20 {
			n := nodeIn("twin", []string{"us/a", "us/b", "eu/a"}[i%3])
			s, r := w.open(sotwMethod), w.open(lrsMethod)
			s.send(w.encode(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: resource.EndpointsURL, ResourceNames: []string{"checkout"}}))
			report := fullReport()
			report.Node = n
			r.send(w.encode(report))
			if s.answers() != 1 || r.answers() != 1 {
				t.Errorf("twin %d: %d and %d answers", i, s.answers(), r.answers())
			}
			all = append(all, s, r)
		}
		for _, s := range all[:20] {
			s.close()
		}
		for i, s := range all[20:] {
			if s.err != nil {
				t.Errorf("stream %d ended with its twin: %v", i, s.err)
			}
		}
		w.alive("with twins")
		for _, s := range all[20:] {
			s.close()
		}
	})
}
