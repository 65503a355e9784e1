package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"golang.org/x/net/http2"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// attack is one way to misbehave.
type attack struct {
	name, what string
	deaf       bool // nothing is read
	do         func(c *rawclient.Attacker) error

	// shared is the budget that the attack is about, if it is not that of messages: one address may use a small
	// part of it, many addresses all.
	shared int64

	// rest replaces do: it attacks the listener for REST until the attack ends, over TLS, from one of many
	// addresses.
	rest func(p *poller)
}

// Sizes.
const (
	streams    = 1000       // of a connection
	window     = 64<<10 - 1 // of a stream
	largest    = 16 << 10   // frame
	pastPool   = 1<<10 + 1  // a frame whose buffer is four times as large
	pastPool16 = 4<<10 + 1
	forEver    = 1 << 40
)

// Budgets of the server beside that of messages.
const (
	namesBudget   = 1 << 30   // for the names that streams subscribe to
	reportsBudget = 768 << 20 // for load reports that wait for the next tick
	pollsBudget   = 512 << 20 // for names of clients that poll
)

const (
	reportMethod = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
	adsMethod    = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	deltaMethod  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	fetchMethod  = "/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints"
	endpointsURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

func attacks() []attack {
	return slices.Concat(messageAttacks(), frameAttacks(), stateAttacks(), variantAttacks(), keptAttacks(), restAttacks())
}

//nolint:funlen // a table
func messageAttacks() []attack {
	empty := make([]byte, window-200)
	half := append([]byte{0}, binary.BigEndian.AppendUint32(nil, 4<<20-1)...)
	half = append(half, make([]byte, window-200)...)
	reports, hello := reportMethod, rawclient.Framed(encoded(&loadstatsv3.LoadStatsRequest{Node: node()}), false)
	ask := rawclient.Framed(encoded(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: endpointsURL, ResourceNames: []string{"checkout"}}), false)
	return []attack{
		{name: "empty-1-byte", what: "1,000 load reports of empty messages, in frames of 1 byte", do: each(reports, hello, empty, 1)},
		{name: "empty-5-bytes", what: "the same in frames of 5 bytes, a message each", do: each(reports, hello, empty, 5)},
		{name: "empty-1025-bytes", what: "the same in frames of 1,025 bytes", do: each(reports, hello, empty, pastPool)},
		{name: "empty-4097-bytes", what: "the same in frames of 4,097 bytes", do: each(reports, hello, empty, pastPool16)},
		{name: "empty-16-KiB", what: "the same in the largest frames", do: each(reports, hello, empty, largest)},
		{name: "unread-then-end", what: "the same in frames of 5 bytes, then the end of each stream", do: func(c *rawclient.Attacker) error {
			return every(c, func() error {
				id := c.Open(reports)
				if err := both(c, id, hello, empty, 5); err != nil {
					return err
				}
				c.Frame(http2.FrameData, http2.FlagDataEndStream, id, nil)
				return nil
			})
		}},
		{name: "half-16-KiB", what: "1,000 streams that begin a message of 4 MiB", do: each(adsMethod, nil, half, largest)},
		{name: "half-1-byte", what: "the same in frames of 1 byte", do: each(adsMethod, nil, half, 1)},
		{name: "half-1025-bytes", what: "the same in frames of 1,025 bytes", do: each(adsMethod, nil, half, pastPool)},
		{name: "half-single", what: "1,000 single requests that begin a message of 4 MiB", do: each(fetchMethod, nil, half, pastPool)},
		{name: "half-reset", what: "begins messages and resets their streams without end", do: func(c *rawclient.Attacker) error {
			return again(func() error {
				id := c.Open(adsMethod)
				if err := c.Data(id, half, pastPool); err != nil {
					return err
				}
				c.Frame(http2.FrameRSTStream, 0, id, []byte{0, 0, 0, 8})
				return c.Flush()
			})
		}},
		{name: "requests", what: "1,000 streams that ask again and again for the same", do: func(c *rawclient.Attacker) error {
			return flood(c, adsMethod, ask, bytes.Repeat(ask, 60))
		}},
		{name: "requests-leave", what: "the same, and goes away and comes back each time", do: func(c *rawclient.Attacker) error {
			defer func() { _ = c.Close() }()
			return flood(c, adsMethod, ask, bytes.Repeat(ask, 60))
		}},
		{name: "gzip", what: "1,000 streams with messages of 4 MiB in 4 KB", do: func(c *rawclient.Attacker) error {
			return every(c, func() error {
				id := c.Open(adsMethod, [2]string{"grpc-encoding", "gzip"})
				return c.Data(id, rawclient.Framed(bomb(), true), largest)
			})
		}},
		{name: "headers", what: "1,000 streams with headers of 15 KB", do: func(c *rawclient.Attacker) error {
			return every(c, func() error {
				c.Open(adsMethod, [2]string{"x", strings.Repeat("a", 15<<10)})
				return c.Flush()
			})
		}},
		{name: "headers-many", what: "1,000 streams with 300 headers", do: func(c *rawclient.Attacker) error {
			fields := make([][2]string, 300)
			for i := range fields {
				fields[i] = [2]string{fmt.Sprint("x-", i), "1"}
			}
			return every(c, func() error {
				c.Open(adsMethod, fields...)
				return c.Flush()
			})
		}},
		{name: "headers-endless", what: "headers that never end", do: func(c *rawclient.Attacker) error {
			c.Frame(http2.FrameHeaders, 0, 1, nil)
			piece := make([]byte, largest)
			return again(func() error { c.Frame(http2.FrameContinuation, 0, 1, piece); return c.Flush() })
		}},
		{name: "pings", what: "pings without end, whose answers the client does not read", deaf: true, do: endless(http2.FramePing, make([]byte, 8))},
		{name: "settings", what: "settings without end, whose answers the client does not read", deaf: true, do: endless(http2.FrameSettings, nil)},
		{name: "resets", what: "streams that are opened and reset without end", do: func(c *rawclient.Attacker) error {
			return again(func() error {
				id := c.Open(adsMethod)
				if err := c.Data(id, ask, largest); err != nil {
					return err
				}
				c.Frame(http2.FrameRSTStream, 0, id, []byte{0, 0, 0, 8})
				return c.Flush()
			})
		}},
		{name: "deaf", what: "500 streams that ask and never read", deaf: true, do: func(c *rawclient.Attacker) error {
			for range streams / 2 {
				if err := c.Data(c.Open(adsMethod), ask, largest); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "reflection-deaf", what: "1,000 reflection streams that ask 100 times and never read", deaf: true, do: func(c *rawclient.Attacker) error {
			const method = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
			question := encoded(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
				FileContainingSymbol: "envoy.service.discovery.v3.AggregatedDiscoveryService",
			}})
			return each(method, nil, bytes.Repeat(rawclient.Framed(question, false), 100), largest)(c)
		}},
		{name: "names", what: "100 streams that ask for 20,000 names each", shared: namesBudget, do: func(c *rawclient.Attacker) error {
			return some(c, streams/10, adsMethod, func(i int) []byte {
				return encoded(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: endpointsURL, ResourceNames: namesOf(c, i)})
			})
		}},
		{name: "names-few", what: "1,000 streams that ask for 150 names each", shared: namesBudget, do: func(c *rawclient.Attacker) error {
			i := 0
			return every(c, func() error {
				names := make([]string, 150)
				for j := range names {
					names[j] = fmt.Sprintf("%d-%d-%p", i, j, c)
				}
				i++
				m := &discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: endpointsURL, ResourceNames: names}
				return c.Data(c.Open(adsMethod), rawclient.Framed(encoded(m), false), largest)
			})
		}},
		{name: "bad-method", what: "1,000 streams of an unknown method, with half a message", do: each("/a/b", nil, half, pastPool)},
		{name: "delta", what: "1,000 delta streams of empty messages, in frames of 5 bytes", do: each(deltaMethod, nil, empty, 5)},
	}
}

// each opens all streams, with one message and then bytes in frames of a size.
func each(method string, first, data []byte, frame int) func(c *rawclient.Attacker) error {
	return func(c *rawclient.Attacker) error {
		return every(c, func() error { return both(c, c.Open(method), first, data, frame) })
	}
}

func both(c *rawclient.Attacker, id uint32, first, data []byte, frame int) error {
	if err := c.Data(id, first, largest); err != nil {
		return err
	}
	return c.Data(id, data, frame)
}

// every calls f once for each stream of a connection.
func every(c *rawclient.Attacker, f func() error) error {
	for range streams {
		if err := f(); err != nil {
			return err
		}
	}
	return c.Flush()
}

// again calls f until it fails.
func again(f func() error) error {
	for range forEver {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// endless sends one frame without end.
func endless(kind http2.FrameType, payload []byte) func(c *rawclient.Attacker) error {
	return func(c *rawclient.Attacker) error {
		return again(func() error {
			for range streams {
				c.Frame(kind, 0, 0, payload)
			}
			return c.Flush()
		})
	}
}

// flood opens all streams and sends the same on them, round after round, as far
// as its window allows.
func flood(c *rawclient.Attacker, method string, first, data []byte) error {
	ids := make([]uint32, 0, streams)
	for range streams {
		id := c.Open(method)
		if err := c.Data(id, first, largest); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	for range window / len(data) / 2 {
		for _, id := range ids {
			if err := c.Data(id, data, largest); err != nil {
				return err
			}
		}
	}
	return nil
}

func node() *corev3.Node {
	return &corev3.Node{Id: "attacker", Cluster: "attackers", Locality: &corev3.Locality{Region: "us", Zone: "a"}}
}

func encoded(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // made of plain strings
	}
	return b
}

// bomb is a message of almost 4 MiB, compressed.
func bomb() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	names := bytes.Repeat(append([]byte{3<<3 | 2, 100}, make([]byte, 100)...), 40_000)
	_, _ = w.Write(names)
	_ = w.Close()
	return b.Bytes()
}
