// Package csds answers what clients were sent, and what they said to it: the
// client status discovery service of xDS v3, as a management server gives it.
// There is one configuration for each open discovery stream.
package csds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
)

// Bounds of what the service gives and keeps.
const (
	// MaxAnswer is the size of an answer in bytes: what gRPC clients take unless
	// told otherwise.
	MaxAnswer = 4 << 20
	// MaxStreams is how many streams may be open; operators open few.
	MaxStreams = 100
	// atOnce is how many answers are made at the same time; others wait.
	atOnce = 2
)

// Clients are those that the service shows.
type Clients interface {
	// Introspect returns the open streams. What it returns is used at once and not
	// kept.
	Introspect() iter.Seq[xds.Introspected]
}

// Server serves ClientStatusDiscoveryService v3. Safe for concurrent use.
type Server struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer

	clients Clients
	working chan struct{} // holds a token for each answer that is being made
	streams atomic.Int64
	stopped chan struct{} // closed by Stop
	stop    sync.Once
}

// New makes a server; Register puts it on a gRPC server.
func New(clients Clients) *Server {
	return &Server{clients: clients, working: make(chan struct{}, atOnce), stopped: make(chan struct{})}
}

// Register makes r serve client status.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	statusv3.RegisterClientStatusDiscoveryServiceServer(r, s)
}

// Stop ends all streams with UNAVAILABLE; it may be called again.
func (s *Server) Stop() { s.stop.Do(func() { close(s.stopped) }) }

// FetchClientStatus answers one request.
func (s *Server) FetchClientStatus(ctx context.Context, r *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	matches, err := matcherOf(r.GetNodeMatchers())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "isobar: %v", err)
	}
	select {
	case s.working <- struct{}{}:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	defer func() { <-s.working }()
	return s.answer(ctx, matches, r.GetExcludeResourceContents())
}

// StreamClientStatus answers each request of a stream in turn.
func (s *Server) StreamClientStatus(stream statusv3.ClientStatusDiscoveryService_StreamClientStatusServer) error {
	if s.streams.Add(1) > MaxStreams {
		s.streams.Add(-1)
		return status.Errorf(codes.ResourceExhausted, "isobar: %d client status streams are open already", MaxStreams)
	}
	defer s.streams.Add(-1)
	for requests := receive(stream); ; {
		select {
		case r := <-requests:
			if errors.Is(r.err, io.EOF) {
				return nil
			}
			if r.err != nil {
				return r.err
			}
			answer, err := s.FetchClientStatus(stream.Context(), r.request)
			if err != nil {
				return err
			}
			if err := stream.Send(answer); err != nil {
				return err
			}
		case <-stream.Context().Done(): // receive may have seen it first, and say nothing more
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.stopped:
			return status.Error(codes.Unavailable, "isobar: the server is stopping")
		}
	}
}

type received struct {
	request *statusv3.ClientStatusRequest
	err     error // the last one
}

// receive returns the requests of a stream one by one. It ends with the stream.
func receive(stream statusv3.ClientStatusDiscoveryService_StreamClientStatusServer) <-chan received {
	out := make(chan received)
	go func() {
		for {
			request, err := stream.Recv()
			select {
			case out <- received{request, err}:
			case <-stream.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

// answer gathers the clients that match, as long as they fit.
func (s *Server) answer(ctx context.Context, matches func(id string) bool, bare bool) (*statusv3.ClientStatusResponse, error) {
	out := &statusv3.ClientStatusResponse{}
	size := 0
	for client := range s.clients.Introspect() {
		if err := ctx.Err(); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		if !matches(client.Node.ID) {
			continue
		}
		config := &statusv3.ClientConfig{Node: nodeOf(&client.Node)}
		size += proto.Size(config) + framing
		for _, r := range client.Resources() {
			one := configOf(&r, bare)
			if size += proto.Size(one) + framing; size > MaxAnswer {
				return nil, tooLarge(len(out.GetConfig()), bare)
			}
			config.GenericXdsConfigs = append(config.GenericXdsConfigs, one)
		}
		if size > MaxAnswer {
			return nil, tooLarge(len(out.GetConfig()), bare)
		}
		out.Config = append(out.Config, config)
	}
	return out, nil
}

// framing is the most that tag and length of a part take.
const framing = 6

func tooLarge(clients int, bare bool) error {
	advice := "name fewer clients with node_matchers"
	if !bare {
		advice += ", or set exclude_resource_contents"
	}
	return status.Error(codes.ResourceExhausted,
		fmt.Sprintf("isobar: more than %d MiB: only %d clients fit; %s", MaxAnswer>>20, clients, advice))
}

// nodeOf returns what is kept of a client's node.
func nodeOf(n *rpc.Node) *corev3.Node {
	out := &corev3.Node{Id: n.ID, Cluster: n.Cluster}
	if l := n.Locality; !l.IsZero() {
		out.Locality = &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
	}
	name, version := splitAgent(n.UserAgent)
	out.UserAgentName = name
	if version != "" {
		out.UserAgentVersionType = &corev3.Node_UserAgentVersion{UserAgentVersion: version}
	}
	return out
}

// splitAgent takes name and version apart, which are kept as one text: names
// have blanks, versions begin with a digit.
func splitAgent(agent string) (name, version string) {
	at := strings.LastIndexByte(agent, ' ')
	if rest := strings.TrimPrefix(agent[at+1:], "v"); at > 0 && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
		return agent[:at], agent[at+1:]
	}
	return agent, ""
}

// configOf returns a client's state of a resource; bare leaves the content out.
func configOf(r *xds.Resource, bare bool) *statusv3.ClientConfig_GenericXdsConfig {
	out := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: r.TypeURL, Name: r.Name}
	out.ConfigStatus, out.ClientStatus = statusOf(r)
	if !r.At.IsZero() {
		out.LastUpdated = timestamppb.New(r.At)
	}
	if r.Sent != nil {
		out.VersionInfo = r.Sent.Version
		if !bare {
			out.XdsConfig = contentOf(r.Sent.Body)
		}
	}
	if r.Delivery == xds.Rejected {
		out.ErrorState = &adminv3.UpdateFailureState{
			LastUpdateAttempt: timestamppb.New(r.Nack.At), Details: r.Nack.Text, VersionInfo: out.GetVersionInfo(),
		}
	}
	return out
}

// contentOf decodes the Any that was sent.
func contentOf(body []byte) *anypb.Any {
	out := &anypb.Any{}
	if err := proto.Unmarshal(body, out); err != nil {
		return nil // what we encoded ourselves can be decoded
	}
	return out
}

// statusOf translates how far a resource got.
func statusOf(r *xds.Resource) (statusv3.ConfigStatus, adminv3.ClientResourceStatus) {
	switch r.Delivery {
	case xds.Unanswered:
		return statusv3.ConfigStatus_STALE, adminv3.ClientResourceStatus_REQUESTED
	case xds.Rejected:
		return statusv3.ConfigStatus_ERROR, adminv3.ClientResourceStatus_NACKED
	case xds.Accepted:
		if r.Newer {
			return statusv3.ConfigStatus_NOT_SENT, adminv3.ClientResourceStatus_ACKED
		}
		return statusv3.ConfigStatus_SYNCED, adminv3.ClientResourceStatus_ACKED
	case xds.NotSent:
	}
	if r.Absent {
		return statusv3.ConfigStatus_NOT_SENT, adminv3.ClientResourceStatus_DOES_NOT_EXIST
	}
	return statusv3.ConfigStatus_NOT_SENT, adminv3.ClientResourceStatus_REQUESTED
}
