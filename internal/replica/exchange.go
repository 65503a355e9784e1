package replica

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// Limits of connections between replicas.
const (
	maxMessage     = 4 << 20
	maxStreams     = 16
	helloPatience  = 5 * time.Second
	peerPingAfter  = 10 * time.Second
	peerPingAnswer = 5 * time.Second
)

// exchange is the server that other replicas connect to.
type exchange struct {
	peerv1.UnimplementedPeerServiceServer

	r          *Replica
	rejections rejections

	mu      sync.Mutex
	streams map[string]*inbound // the newest of each replica
}

// inbound is the state of another replica's stream.
type inbound struct {
	from    group.Identity
	version string
	cancel  context.CancelCauseFunc
	summary *peerv1.Summary

	plan assembly
}

func newExchange(r *Replica) *exchange { return &exchange{r: r, streams: map[string]*inbound{}} }

func (x *exchange) serve(ctx context.Context) error {
	creds := insecure.NewCredentials()
	if x.r.opts.ServerTLS != nil {
		creds = credentials.NewTLS(x.r.opts.ServerTLS)
	}
	g := grpc.NewServer(
		grpc.Creds(creds), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(helloPatience),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: peerPingAfter, Timeout: peerPingAnswer}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: peerPingAnswer, PermitWithoutStream: true}),
	)
	peerv1.RegisterPeerServiceServer(g, x)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		g.Stop()
	}()
	err := g.Serve(x.r.opts.Listener)
	if ctx.Err() != nil {
		<-stopped
		return nil //nolint:nilerr // it was stopped
	}
	return fmt.Errorf("replicas.listen: %w", err)
}

// Exchange implements [peerv1.PeerServiceServer].
func (x *exchange) Exchange(stream grpc.BidiStreamingServer[peerv1.ExchangeRequest, peerv1.ExchangeResponse]) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	late := time.AfterFunc(helloPatience, func() { cancel(errors.New("no greeting came")) })
	defer late.Stop()
	messages := receive(ctx, stream)
	first, err := next(ctx, messages)
	if err != nil {
		return err
	}
	in, err := x.greet(stream.Context(), first.GetHello())
	if err != nil {
		if x.reject("connection", err) {
			x.r.log.Warn("rejected the connection of another replica", "error", err)
		}
		return status.Error(codes.PermissionDenied, err.Error())
	}
	late.Stop()
	in.cancel = cancel
	x.register(in)
	defer x.release(in)
	if err := stream.Send(&peerv1.ExchangeResponse{Hello: x.r.hello()}); err != nil {
		return err
	}
	plans := startPlanReader(func(p *group.Plan) {
		if err := x.r.receivedPlan(in.from.Name, p); err != nil {
			cancel(x.rejected(in, err))
		}
	})
	defer func() {
		plans.stop()
		x.r.expect(in.from.Name, 0)
	}()
	for {
		m, err := next(ctx, messages)
		if err != nil {
			return err
		}
		if err := x.take(in, plans, m); err != nil {
			return x.rejected(in, err)
		}
	}
}

// rejected notes that a message of another replica was rejected, and returns the end of its stream.
func (x *exchange) rejected(in *inbound, err error) error {
	if x.reject("message of "+in.from.Name, err) {
		x.r.log.Warn("rejected a message of another replica", "from", in.from.Name, "error", err)
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

// planReader reads the plans of one stream beside it: the statuses behind a plan show that the
// other replica can be reached, and must not wait. Of the plans that arrive while one is read, it
// reads the newest.
type planReader struct {
	waiting chan *group.Plan // capacity 1
	done    chan struct{}
}

func startPlanReader(read func(*group.Plan)) *planReader {
	r := &planReader{waiting: make(chan *group.Plan, 1), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for p := range r.waiting {
			read(p)
		}
	}()
	return r
}

// offer never waits. Only the goroutine of the stream calls it.
func (r *planReader) offer(p *group.Plan) {
	select {
	case <-r.waiting:
	default:
	}
	r.waiting <- p
}

// stop drops the plan that waits, and waits until the one that is being read is read.
func (r *planReader) stop() {
	select {
	case <-r.waiting:
	default:
	}
	close(r.waiting)
	<-r.done
}

// received is a message, or why none comes any more.
type received struct {
	message *peerv1.ExchangeRequest
	err     error
}

// receive reads the stream until it ends or ctx does, so that a stream can be ended
// from here.
func receive(ctx context.Context, stream grpc.BidiStreamingServer[peerv1.ExchangeRequest, peerv1.ExchangeResponse]) <-chan received {
	out := make(chan received)
	go func() {
		for {
			m, err := stream.Recv()
			select {
			case out <- received{m, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

func next(ctx context.Context, messages <-chan received) (*peerv1.ExchangeRequest, error) {
	select {
	case r := <-messages:
		return r.message, r.err
	case <-ctx.Done():
		if s, ok := status.FromError(context.Cause(ctx)); ok {
			return nil, s.Err()
		}
		return nil, status.Error(codes.Unavailable, context.Cause(ctx).Error())
	}
}

func (r *Replica) hello() *peerv1.Hello {
	return &peerv1.Hello{
		Protocol: protocol, OldestProtocol: oldest, Group: r.opts.Group, Replica: identityToProto(r.self), Version: r.opts.Version,
	}
}

// greet checks the identity of the other replica.
func (x *exchange) greet(ctx context.Context, h *peerv1.Hello) (*inbound, error) {
	name := h.GetReplica().GetName()
	if err := x.r.checkHello(h, name); err != nil {
		return nil, err
	}
	if x.r.peers[name] == nil {
		return nil, fmt.Errorf("%q is no replica of this group: add it to replicas.peers", name)
	}
	if x.r.opts.ServerTLS != nil {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return nil, errors.New("the connection shows no certificate")
		}
		info, ok := p.AuthInfo.(credentials.TLSInfo)
		if !ok {
			return nil, errors.New("the connection shows no certificate")
		}
		if err := checkCertificate(&info.State, x.r.opts.Group, name); err != nil {
			return nil, err
		}
	}
	return &inbound{from: identityFromProto(h.GetReplica()), version: bounded(h.GetVersion())}, nil
}

// maxShown bounds a text of another replica that is shown, in bytes.
const maxShown = 200

func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxShown)], "?") }

// checkHello asserts that the other side is the replica of the group that it is taken
// for, and that both speak a version of the protocol.
func (r *Replica) checkHello(h *peerv1.Hello, name string) error {
	switch {
	case h == nil:
		return errors.New("the first message is no greeting")
	case h.GetGroup() != r.opts.Group:
		return fmt.Errorf("it belongs to group %q, and this replica to %q", bounded(h.GetGroup()), r.opts.Group)
	case h.GetReplica().GetName() != name:
		return fmt.Errorf("the replica that answers is called %q, not %q: see replicas.name and replicas.peers", bounded(h.GetReplica().GetName()), name)
	case h.GetOldestProtocol() > protocol || h.GetProtocol() < oldest:
		return fmt.Errorf("it speaks versions %d to %d of the protocol between replicas (Isobar %s), and this replica %d to %d (Isobar %s)",
			h.GetOldestProtocol(), h.GetProtocol(), bounded(h.GetVersion()), oldest, protocol, r.opts.Version)
	}
	return nil
}

// CertificateName is the path of the URI that the certificate of a replica has to
// have, as in spiffe://example.org/isobar/GROUP/NAME; host and scheme are free.
func CertificateName(group, name string) string { return "/isobar/" + group + "/" + name }

func checkCertificate(s *tls.ConnectionState, groupName, name string) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the connection shows no certificate")
	}
	want := CertificateName(groupName, name)
	if slices.Contains(uriPaths(s.PeerCertificates[0]), want) {
		return nil
	}
	return fmt.Errorf("the certificate does not name the replica: it needs a URI such as spiffe://example.org%s, and has the paths %q",
		want, uriPaths(s.PeerCertificates[0]))
}

func uriPaths(c *x509.Certificate) []string {
	var out []string
	for _, u := range c.URIs {
		out = append(out, u.Path)
	}
	return out
}

// register makes the stream the replica's only one.
func (x *exchange) register(in *inbound) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if before := x.streams[in.from.Name]; before != nil {
		before.cancel(errors.New("the replica connected again"))
	}
	x.streams[in.from.Name] = in
	x.r.log.Info("a replica connected", "from", in.from.Name, "version", in.version)
}

func (x *exchange) release(in *inbound) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.streams[in.from.Name] == in {
		delete(x.streams, in.from.Name)
		x.r.log.Info("a replica disconnected", "from", in.from.Name)
	}
}

// reported returns the last report of a replica about itself on its stream.
func (x *exchange) reported(name string) (version string, summary *peerv1.Summary, connected bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	in := x.streams[name]
	if in == nil {
		return "", nil, false
	}
	return in.version, in.summary, true
}

// take carries out a message.
func (x *exchange) take(in *inbound, plans *planReader, m *peerv1.ExchangeRequest) error {
	switch m := m.GetMessage().(type) {
	case *peerv1.ExchangeRequest_Status:
		x.mu.Lock()
		in.summary = m.Status.GetSummary()
		x.mu.Unlock()
		return x.r.received(in.from.Name, group.Message{Status: statusFromProto(m.Status)})
	case *peerv1.ExchangeRequest_Pull:
		return x.r.received(in.from.Name, group.Message{Pull: &group.Pull{Above: m.Pull.GetAbove(), Base: m.Pull.GetBase()}})
	case *peerv1.ExchangeRequest_Plan:
		whole, err := in.plan.add(m.Plan)
		if whole == nil || err != nil {
			return err
		}
		x.r.expect(in.from.Name, whole.Version)
		plans.offer(whole)
		return nil
	case *peerv1.ExchangeRequest_Observations:
		if x.r.opts.Observed != nil {
			x.r.opts.Observed(in.from, m.Observations)
		}
		return nil
	case *peerv1.ExchangeRequest_StepDown:
		x.r.steppedDown(in.from.Name, bounded(m.StepDown.GetWho()))
		return nil
	default:
		return nil // of a newer version
	}
}

func (r *Replica) received(from string, m group.Message) (err error) {
	r.do(func(n *group.Node, now time.Duration) { err = n.Received(now, from, m) })
	return err
}

// expect notes the newest plan of another replica that has arrived and will be read; 0 = none.
func (r *Replica) expect(from string, version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.expected[from] = version; version == 0 {
		delete(r.expected, from)
	}
}

// receivedPlan reads a plan and offers it to the node.
func (r *Replica) receivedPlan(from string, p *group.Plan) error {
	r.metrics.received.Add(float64(p.Content.Size()))
	r.mu.Lock()
	known := p.Version <= r.served.Version
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		if r.expected[from] == p.Version { // none arrived meanwhile
			delete(r.expected, from)
		}
		r.mu.Unlock()
	}()
	if !known {
		opened, err := r.open(p.Content)
		if err != nil {
			r.metrics.refused.Inc()
			r.mu.Lock()
			r.unreadable = max(r.unreadable, p.Version)
			r.alarm(alarmUnreadable, fmt.Sprintf("plan %d of %s can't be read: %v", p.Version, from, err))
			r.mu.Unlock()
			return nil
		}
		r.mu.Lock()
		if len(r.opened) < 2*group.MaxReplicas {
			r.opened[p.Version] = opened
		}
		r.mu.Unlock()
	}
	return r.received(from, group.Message{Plan: p})
}

// Address returns where other replicas reach this one.
func (r *Replica) Address() net.Addr { return r.opts.Listener.Addr() }
