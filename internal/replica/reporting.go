package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

const (
	// reportingPatience bounds how long another replica may take to answer.
	reportingPatience = 3 * time.Second
	// reportingBytes bounds the names in one request, with space in the message for the rest.
	reportingBytes = maxMessage / 2
)

// errNotConnected says that there is no connection to another replica.
var errNotConnected = errors.New("not connected")

// reporting asks the other replica about each node; see [Replica.Reporting].
func (l *link) reporting(ctx context.Context, nodes []*peerv1.Node) ([]uint32, error) {
	l.mu.Lock()
	client := l.client
	l.mu.Unlock()
	if client == nil {
		return nil, errNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, reportingPatience)
	defer cancel()
	out := make([]uint32, 0, len(nodes))
	for len(out) < len(nodes) {
		part := firstNodes(nodes[len(out):])
		answer, err := client.Reporting(ctx, &peerv1.ReportingRequest{Hello: l.r.hello(), Nodes: part})
		if err != nil {
			return nil, err
		}
		if len(answer.GetStreams()) != len(part) {
			return nil, fmt.Errorf("it told about %d clients, and was asked about %d", len(answer.GetStreams()), len(part))
		}
		out = append(out, answer.GetStreams()...)
	}
	return out, nil
}

// firstNodes returns those that fit into a request, and one at least.
func firstNodes(nodes []*peerv1.Node) []*peerv1.Node {
	size := 0
	for i, n := range nodes {
		if size += proto.Size(n); i > 0 && size > reportingBytes {
			return nodes[:i]
		}
	}
	return nodes
}

// Reporting implements [peerv1.PeerServiceServer].
func (x *exchange) Reporting(ctx context.Context, m *peerv1.ReportingRequest) (*peerv1.ReportingResponse, error) {
	if _, err := x.greet(ctx, m.GetHello()); err != nil {
		x.r.metrics.rejected.Inc()
		x.r.log.Warn("rejected a question of another replica", "error", err)
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	if x.r.opts.Reporting == nil {
		return &peerv1.ReportingResponse{Streams: make([]uint32, len(m.GetNodes()))}, nil
	}
	return &peerv1.ReportingResponse{Streams: x.r.opts.Reporting(m.GetNodes())}, nil
}
