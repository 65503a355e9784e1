package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// maxObservations bounds the messages that wait for a leader that reads slowly; the oldest goes.
const maxObservations = 256

// planBytesPerSecond bounds the network use of plans to one other replica, on average: after a
// plan, the next one waits.
const planBytesPerSecond = 32 << 20

// link carries messages from this replica to another one. Only the newest of each kind waits, so
// a slow replica delays no other and takes no memory without bound.
type link struct {
	r    *Replica
	peer Peer
	kick chan struct{} // capacity 1

	mu           sync.Mutex
	status       *group.Status
	plan         *group.Plan
	pull         *group.Pull
	stepping     *peerv1.StepDown
	observations []*peerv1.Observations
	sending      uint64 // version of the plan that is being sent; 0 = none
	busy         bool
	client       peerv1.PeerServiceClient // nil before run
	failure      string                   // why there is no connection; empty while there is one
	ever         bool

	// Of the goroutine of run: the protocol version of the other replica, the last plan that it
	// got whole on this stream, before when no further one is sent, and whether the log has a
	// line about a message that was too large.
	speaks uint32
	sent   *group.Plan
	rest   time.Time
	warned bool
}

func newLink(r *Replica, p Peer) *link {
	return &link{r: r, peer: p, kick: make(chan struct{}, 1), failure: "not connected yet"}
}

// send takes a message of the node.
func (l *link) send(m group.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case m.Status != nil:
		s := *m.Status
		if l.status != nil { // waiting messages must not be lost
			s.Asks, s.HandsOver = s.Asks || l.status.Asks, s.HandsOver || l.status.HandsOver
		}
		l.status = &s
	case m.Plan != nil && m.Plan.Version <= l.sending: // it is on its way: a replica asks again while a large plan is
	case m.Plan != nil:
		l.plan = m.Plan
	case m.Pull != nil:
		l.pull = m.Pull
	}
	signal(l.kick)
}

func (l *link) report(parts []*peerv1.Observations) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observations = append(l.observations, parts...)
	if over := len(l.observations) - maxObservations; over > 0 {
		l.observations = append([]*peerv1.Observations(nil), l.observations[over:]...)
	}
	signal(l.kick)
}

func (l *link) stepDown(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stepping = &peerv1.StepDown{Who: who}
	signal(l.kick)
}

// flush waits until everything is sent, or ctx ends.
func (l *link) flush(ctx context.Context) {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		l.mu.Lock()
		done := !l.busy && l.status == nil && l.plan == nil || l.failure != ""
		l.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// state tells operators how things stand.
func (l *link) state() (failure string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// run connects, and connects again, until ctx ends.
func (l *link) run(ctx context.Context) {
	creds := insecure.NewCredentials()
	if l.r.opts.ClientTLS != nil {
		creds = credentials.NewTLS(l.r.opts.ClientTLS)
	}
	connection, err := grpc.NewClient("passthrough:///"+l.peer.Address,
		grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: peerPingAfter, Timeout: peerPingAnswer}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 2 * time.Second}, MinConnectTimeout: 3 * time.Second,
		}))
	if err != nil {
		l.failed(err)
		return
	}
	defer func() { _ = connection.Close() }() // nothing waits to be sent
	client := peerv1.NewPeerServiceClient(connection)
	l.mu.Lock()
	l.client = client
	l.mu.Unlock()
	for ctx.Err() == nil {
		err := l.exchange(ctx, client)
		if ctx.Err() != nil {
			return
		}
		l.failed(err)
		pause := time.NewTimer(200*time.Millisecond + time.Duration(rand.Int64N(int64(300*time.Millisecond)))) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// failed notes why there is no connection.
func (l *link) failed(err error) {
	l.mu.Lock()
	news := l.failure == "" || !l.ever
	l.failure, l.ever, l.busy = err.Error(), true, false
	l.mu.Unlock()
	if news {
		l.r.log.Warn("can't reach another replica; retrying", "to", l.peer.Name, "address", l.peer.Address, "error", err)
	}
}

// exchange sends on one stream until it fails.
func (l *link) exchange(ctx context.Context, client peerv1.PeerServiceClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Exchange(ctx, grpc.WaitForReady(false))
	if err != nil {
		return err
	}
	if err := l.greet(stream); err != nil {
		return err
	}
	l.sent, l.rest = nil, time.Time{}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	l.mu.Lock()
	l.failure, l.ever = "", true
	l.mu.Unlock()
	signal(l.kick)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-l.kick:
			if err := l.drain(stream); err != nil {
				return errors.Join(err, recvError(ended))
			}
		}
	}
}

// recvError returns why the stream ended, which sending does not tell.
func recvError(ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

type outbound = grpc.BidiStreamingClient[peerv1.ExchangeRequest, peerv1.ExchangeResponse]

// greet sends this replica's identity, and checks that of the other.
func (l *link) greet(stream outbound) error {
	if err := stream.Send(&peerv1.ExchangeRequest{Message: &peerv1.ExchangeRequest_Hello{Hello: l.r.hello()}}); err != nil {
		_, cause := stream.Recv()
		return errors.Join(err, cause)
	}
	answer, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := l.r.checkHello(answer.GetHello(), l.peer.Name); err != nil {
		return err
	}
	l.speaks = min(answer.GetHello().GetProtocol(), protocol)
	if l.r.opts.ClientTLS == nil {
		return nil
	}
	if p, ok := peer.FromContext(stream.Context()); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return checkCertificate(&info.State, l.r.opts.Group, l.peer.Name)
		}
	}
	return errors.New("the connection shows no certificate")
}

// batch holds the waiting messages.
type batch struct {
	status       *group.Status
	plan         *group.Plan
	pull         *group.Pull
	stepping     *peerv1.StepDown
	observations []*peerv1.Observations
}

func (l *link) take() batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := batch{l.status, l.plan, l.pull, l.stepping, l.observations}
	l.status, l.plan, l.pull, l.stepping, l.observations = nil, nil, nil, nil, nil
	l.busy = true
	if wait := time.Until(l.rest); b.plan != nil && wait > 0 {
		b.plan, l.plan = nil, b.plan
		time.AfterFunc(wait, func() { signal(l.kick) })
	}
	if b.plan != nil {
		l.sending = b.plan.Version
	}
	return b
}

// takeStatus takes the status alone, which does not wait for a plan to be sent.
func (l *link) takeStatus() *group.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	l.status = nil
	return s
}

// drain sends the waiting messages.
func (l *link) drain(stream outbound) error {
	b := l.take()
	defer func() {
		l.mu.Lock()
		l.busy, l.sending = false, 0
		l.mu.Unlock()
	}()
	if b.stepping != nil {
		if err := stream.Send(&peerv1.ExchangeRequest{Message: &peerv1.ExchangeRequest_StepDown{StepDown: b.stepping}}); err != nil {
			return err
		}
	}
	if b.pull != nil {
		pull := &peerv1.Pull{Above: b.pull.Above, Base: b.pull.Base}
		if err := stream.Send(&peerv1.ExchangeRequest{Message: &peerv1.ExchangeRequest_Pull{Pull: pull}}); err != nil {
			return err
		}
	}
	if err := l.sendPlan(stream, b.plan); err != nil { // before the status that announces it
		return err
	}
	if err := l.sendStatus(stream, b.status); err != nil {
		return err
	}
	for _, o := range b.observations {
		if err := l.sendObservations(stream, o); err != nil {
			return err
		}
		if err := l.sendStatus(stream, l.takeStatus()); err != nil {
			return err
		}
	}
	return nil
}

// sendObservations sends one message for the leader. A message that is too large for the
// connection is left out, since an attempt to send it would end the stream, and waiting messages
// would be lost. The leader still learns which streams the message ends.
func (l *link) sendObservations(stream outbound, o *peerv1.Observations) error {
	m := &peerv1.ExchangeRequest{Message: &peerv1.ExchangeRequest_Observations{Observations: o}}
	if bytes := proto.Size(m); bytes > maxMessage {
		l.r.metrics.tooLarge.Inc()
		if !l.warned {
			l.warned = true
			l.r.log.Warn("a load report or health message is too large for the leader; leaving it out, and further ones without a line",
				"to", l.peer.Name, "node", firstNode(o), "bytes", bytes, "limit", maxMessage)
		}
		o = &peerv1.Observations{Sequence: o.GetSequence(), PlanVersion: o.GetPlanVersion(), Last: o.GetLast()}
		m = &peerv1.ExchangeRequest{Message: &peerv1.ExchangeRequest_Observations{Observations: o}}
	}
	l.r.metrics.observed.Add(float64(proto.Size(o)))
	return stream.Send(m)
}

// firstNode is the node of the first load report, which is the only one of a message that is too
// large.
func firstNode(o *peerv1.Observations) string {
	if w := o.GetWindows(); len(w) > 0 {
		return w[0].GetNodeId()
	}
	return ""
}

func (l *link) sendStatus(stream outbound, s *group.Status) error {
	if s == nil {
		return nil
	}
	message := statusToProto(s, l.r.summary())
	return stream.Send(&peerv1.ExchangeRequest{Message: &peerv1.ExchangeRequest_Status{Status: message}})
}

// cutter cuts plans into parts, which are mostly the same for all other replicas.
type cutter struct {
	mu   sync.Mutex // held while a plan is cut into parts
	last sentParts
}

// sentParts are the parts of a plan.
type sentParts struct {
	version, base uint64
	speaks        uint32
	parts         []*peerv1.PlanPart
}

// partsOf is [parts], made once for all replicas that got the same plans.
func (c *cutter) partsOf(p, base *group.Plan, speaks uint32) []*peerv1.PlanPart {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := sentParts{version: p.Version, speaks: speaks}
	if base != nil {
		want.base = base.Version
	}
	if s := &c.last; s.version != want.version || s.base != want.base || s.speaks != want.speaks {
		want.parts = parts(p, base, speaks)
		c.last = want
	}
	return c.last.parts
}

// sendPlan sends a plan in parts, as a difference from the last one where the other
// replica knows these. A newer one that comes meanwhile waits until it is done: plans that
// overtook each other would never arrive on a slow connection.
func (l *link) sendPlan(stream outbound, p *group.Plan) error {
	if p == nil {
		return nil
	}
	began, bytes := time.Now(), 0
	for _, part := range l.r.cutter.partsOf(p, l.sent, l.speaks) {
		if err := stream.Send(&peerv1.ExchangeRequest{Message: &peerv1.ExchangeRequest_Plan{Plan: part}}); err != nil {
			return err
		}
		bytes += len(part.GetContent())
		l.r.metrics.sent.Add(float64(len(part.GetContent())))
		if err := l.sendStatus(stream, l.takeStatus()); err != nil {
			return err
		}
	}
	l.sent, l.rest = p, began.Add(time.Duration(bytes)*time.Second/planBytesPerSecond)
	return nil
}
