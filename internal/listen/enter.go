package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// entrance admits streams and requests below the limits whose client has the permission, and
// counts the resources that they hold.
type entrance struct {
	policy func() identity.Policy
	log    *slog.Logger

	rate       *admission.Rate    // of new streams
	identities *admission.Budgets // of streams of clients with a certificate
	addresses  *admission.Budgets // of all other streams
	requests   *admission.Budgets // of single requests under way
	admission  *admission.Metrics

	refused  *prometheus.CounterVec // by identity
	logs     rpc.LogLimit
	refusals refusals // of checkers
	answers  answers  // that clients have yet to take
	panics   rpc.Panics
}

// visitor is who a stream or request is from, in its context.
type visitor struct {
	peer    *identity.Peer // nil without a certificate
	address string         // that it counts under
	stream  *admission.Stream
}

type visitorKey struct{}

func visitorOf(ctx context.Context) *visitor {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		return v
	}
	return &visitor{}
}

// enteredStream is a stream with its visitor.
type enteredStream struct {
	grpc.ServerStream

	ctx     context.Context //nolint:containedctx // what grpc.ServerStream asks for
	gate    *entrance
	visitor *visitor
	role    identity.Role // that the method asks for
	direct  directStream
}

// directStream is a stream on which only what is taken is counted.
type directStream struct {
	grpc.ServerStream

	unread *admission.Unread
}

// RecvMsg implements grpc.ServerStream.
func (s *directStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	s.unread.Taken()
	return err
}

// SendMsg implements grpc.ServerStream.
func (s *enteredStream) SendMsg(m any) error {
	m, err := s.gate.countedAnswer(m, s.visitor.address)
	if err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg implements grpc.ServerStream. On a stream of operators each message is a
// request of its own, and asks for the role again.
func (s *enteredStream) RecvMsg(m any) error {
	if err := s.direct.RecvMsg(m); err != nil || s.role != identity.RoleAdmin {
		return err
	}
	if err := s.gate.policy().CheckRole(s.visitor.peer, identity.RoleAdmin); err != nil {
		return s.gate.refuseIdentity(err, identity.RoleAdmin, s.visitor.address, "")
	}
	return nil
}

// Direct lets the stream layer send and receive past this stream: SendMsg has nothing to do for frames, and RecvMsg
// only counts for those who are no operators.
func (s *enteredStream) Direct() grpc.ServerStream {
	if s.role == identity.RoleAdmin {
		return s
	}
	return &s.direct
}

// Context implements grpc.ServerStream.
func (s *enteredStream) Context() context.Context { return s.ctx }

// enterStream admits a stream below the limits whose client may use the service, and counts it
// until it ends.
func (g *entrance) enterStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	v, err := g.enter(ss.Context(), info.FullMethod)
	if err != nil {
		return advised(err, ss.SetTrailer)
	}
	defer v.stream.Close()
	ctx := context.WithValue(ss.Context(), visitorKey{}, v)
	direct := directStream{ss, admission.UnreadOf(ctx)}
	return advised(h(srv, &enteredStream{ss, ctx, g, v, roleOf(info.FullMethod), direct}), ss.SetTrailer)
}

// enterUnary does the same for single requests. Health checks always get in:
// a load balancer that gets none answered takes the server out.
func (g *entrance) enterUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	arrived(ctx)
	if info.FullMethod == healthpb.Health_Check_FullMethodName {
		return h(ctx, req)
	}
	trailer := func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) } // fails only without a stream
	v, err := g.enter(ctx, info.FullMethod)
	if err != nil {
		return nil, advised(err, trailer)
	}
	defer v.stream.Close()
	resp, err := h(context.WithValue(ctx, visitorKey{}, v), req)
	if err == nil {
		resp, err = g.countedAnswer(resp, v.address)
	}
	return resp, advised(err, trailer)
}

func (g *entrance) enter(ctx context.Context, method string) (*visitor, error) {
	v := &visitor{address: "local"}
	if p, ok := peer.FromContext(ctx); ok {
		if p.Addr != nil {
			v.address = admission.Address(p.Addr)
		}
		if info, ok := admission.TLSInfo(p); ok {
			v.peer = identity.PeerOfState(&info.State)
		}
	}
	if refused := g.rate.Take(v.address, time.Now()); refused != "" {
		return nil, g.turnAway(refused, v.address, "")
	}
	if role := roleOf(method); role != 0 {
		if err := g.policy().CheckRole(v.peer, role); err != nil {
			err = g.refuseIdentity(err, role, v.address, "")
			if role == identity.RoleChecker {
				g.refusals.refuse(ctx, v.account(), err)
			}
			return nil, err
		}
	}
	return v, g.open(v, kindOf(method))
}

// account is what a visitor counts under: its identity, if it has one.
func (v *visitor) account() string {
	if v.peer != nil {
		return "identity " + v.peer.Name()
	}
	return "address " + v.address
}

// AnonymousAccount is the account of a visitor that shows no certificate.
func AnonymousAccount(ctx context.Context) string {
	if v := visitorOf(ctx); v.peer == nil && v.address != "" {
		return v.account()
	}
	return ""
}

// ProvenIdentity is what the certificate of a visitor names, "" without one.
func ProvenIdentity(ctx context.Context) string {
	if v := visitorOf(ctx); v.peer != nil {
		return v.peer.Name()
	}
	return ""
}

// ReportingAccount is the account of a client that reports load, and whether a
// certificate shows it.
func ReportingAccount(ctx context.Context) (account string, certified bool) {
	v := visitorOf(ctx)
	if v.peer == nil && v.address == "" {
		return "", false
	}
	return v.account(), v.peer != nil
}

// open books what a visitor has open.
func (g *entrance) open(v *visitor, k admission.Kind) error {
	account, budgets := v.account(), g.identities
	if v.peer == nil {
		budgets = g.addresses
	}
	var refused admission.Reason
	if v.stream, refused = budgets.Open(account, k); refused != "" {
		return g.turnAway(refused, account, "")
	}
	return nil
}

// Admits returns what the stream layers ask about each node.
func (g *entrance) Admits(role identity.Role) func(context.Context, rpc.Node) error {
	return func(ctx context.Context, n rpc.Node) error {
		v := visitorOf(ctx)
		if err := g.policy().Check(v.peer, role, n.Locality); err != nil {
			err = g.refuseIdentity(err, role, v.address, n.ID)
			if role == identity.RoleChecker {
				g.refusals.refuse(ctx, fmt.Sprintf("%.100q of %s", n.ID, v.account()), err)
			}
			return err
		}
		if v.stream == nil {
			return nil // of a caller that keeps no books
		}
		if refused := v.stream.Locate(n.Locality); refused != "" {
			return g.turnAway(refused, v.address, n.ID)
		}
		return nil
	}
}

// turnAway counts and logs a refusal by a limit, and makes the status. The node is empty as long
// as the client has not sent it.
func (g *entrance) turnAway(r admission.Reason, from, node string) error {
	g.admission.Stream(r)
	if skipped, ok := g.logs.Allow(time.Now()); ok {
		g.log.Warn("rejected a stream", "reason", r, "peer", from, "node", node, "skipped_lines", skipped)
	}
	return status.Error(codes.ResourceExhausted, "isobar: "+r.Text()+"; try again later")
}

// refuseIdentity counts and logs that a client is not what it should be, and
// makes the status. The node is empty as above.
func (g *entrance) refuseIdentity(err error, role identity.Role, from, node string) error {
	code, reason := codes.PermissionDenied, "unknown"
	switch {
	case errors.Is(err, identity.ErrAnonymous):
		code, reason = codes.Unauthenticated, "anonymous"
	case errors.Is(err, identity.ErrRole):
		reason = "role"
	case errors.Is(err, identity.ErrLocality):
		reason = "locality"
	}
	g.refused.WithLabelValues(role.String(), reason).Inc()
	if skipped, ok := g.logs.Allow(time.Now()); ok {
		g.log.Warn("rejected a client", "error", err, "peer", from, "node", node, "skipped_lines", skipped)
	}
	return status.Error(code, "isobar: "+err.Error())
}

// retryPushback is the trailer by which gRPC is told when to try again.
const retryPushback = "grpc-retry-pushback-ms"

// advised adds to the status of a reached limit when to try again. Messages that are too large
// for gRPC itself are too large later, too.
func advised(err error, trailer func(metadata.MD)) error {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.ResourceExhausted || strings.HasPrefix(st.Message(), "grpc: ") {
		return err
	}
	wait := rpc.RetryWait()
	trailer(metadata.Pairs(retryPushback, strconv.FormatInt(wait.Milliseconds(), 10)))
	if with, derr := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); derr == nil {
		st = with
	}
	return st.Err()
}

// roleOf returns the role that a method asks for, by its service; 0 where none
// is asked for: a health check tells nothing but that the server is there. What
// is not named here is for operators.
func roleOf(method string) identity.Role {
	if serviceOf(method) == "Health" {
		return 0
	}
	switch kindOf(method) {
	case admission.HealthChecks:
		return identity.RoleChecker
	case admission.Discovery, admission.LoadReports:
		return identity.RoleClient
	default:
		return identity.RoleAdmin
	}
}

// kindOf tells what a method is for, by its service. What is not named here is
// for operators.
func kindOf(method string) admission.Kind {
	name := serviceOf(method)
	switch {
	case name == "HealthDiscoveryService":
		return admission.HealthChecks
	case name == "ClientStatusDiscoveryService":
		return admission.Operation
	case name == "LoadReportingService":
		return admission.LoadReports
	case strings.HasSuffix(name, "DiscoveryService"):
		return admission.Discovery
	default:
		return admission.Operation
	}
}

// serviceOf returns the name of a method's service, without its package.
func serviceOf(method string) string {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service[strings.LastIndexByte(service, '.')+1:]
}
