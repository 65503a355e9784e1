package lrs

import (
	"errors"
	"strings"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// grpcGo is the user agent that reads only the first response of a stream.
const grpcGo = "grpc go"

// greet takes the first message and tells whether it holds statistics.
func (m *message) greet(encoded []byte) (statistics bool, err error) {
	var hello loadstatsv3.LoadStatsRequest
	if err := rpc.Decode(encoded, &hello); err != nil {
		return false, err
	}
	if m.refused = m.stream.server.enter(m.stream, &hello); m.refused != nil {
		return false, nil //nolint:nilerr // whoever receives the message ends the stream with it
	}
	close(m.ready)
	m.ready = nil
	return len(hello.GetClusterStats()) > 0, nil
}

// enter takes a stream in by its first message; the errors are statuses.
func (s *Server) enter(st *stream, hello *loadstatsv3.LoadStatsRequest) error {
	if err := st.introduce(hello); err != nil {
		return s.refuse(refusedMessage, codes.InvalidArgument, err.Error())
	}
	before := s.readmissions.Load()
	if err := s.welcome(st); err != nil {
		return err
	}
	if !s.admit(st) {
		return s.refuse(refusedFull, codes.ResourceExhausted, "too many load reporting streams")
	}
	if s.readmissions.Load() != before { // that one may have missed this stream
		return s.welcome(st)
	}
	return nil
}

// introduce reads the node of the first message; later ones don't count.
func (st *stream) introduce(m *loadstatsv3.LoadStatsRequest) error {
	if m.GetNode() == nil {
		return errNoNode
	}
	n, err := rpc.NodeFrom(m.GetNode())
	if err != nil {
		return err
	}
	st.node = n
	st.window.Node = n.Node
	if account := st.server.opts.Account; account != nil {
		st.window.Account, st.window.Identified = account(st.grpc.Context())
	}
	st.once = strings.EqualFold(m.GetNode().GetUserAgentName(), grpcGo)
	return nil
}

var errNoNode = errors.New("node: missing, the first message of a stream must carry it")
