package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
)

// EnvoyBuild is the age of an Envoy, as far as it matters to health discovery.
type EnvoyBuild uint8

// The builds, newest first.
const (
	// EnvoyNow has the habits of present builds.
	EnvoyNow EnvoyBuild = iota
	// EnvoyEarly2021 stops reporting when a new stream begins with the specifier
	// that the last one ended with.
	EnvoyEarly2021
	// Envoy2019 crashes on a specifier without interval as well, makes all
	// clusters again with every specifier, and reports in the flat form only.
	Envoy2019
	// Envoy2018 also opens its stream with a bare request.
	Envoy2018
)

// ProbeOutcome is how a probe of an [EnvoyChecker] ends.
type ProbeOutcome uint8

// The outcomes.
const (
	ProbePasses  ProbeOutcome = iota // at once
	ProbeFails                       // at once: refused or reset
	ProbeRejects                     // at once, with an answer that says no
	ProbeHangs                       // at the timeout
)

// EnvoyCheckerOptions says who a fake Envoy is. Conn and ID are required.
type EnvoyCheckerOptions struct {
	Conn     grpc.ClientConnInterface
	ID       string // node.id
	Locality isobar.Locality
	Build    EnvoyBuild
	// Probe returns how a probe that begins now will end; nil = all pass. It must
	// be safe for concurrent use and must not call the checker.
	Probe func(cluster, address string, now time.Time) ProbeOutcome
	// Seed of the jitter of reconnects.
	Seed uint64
}

// EnvoyChecker is a fake Envoy as a client of health discovery. It is written
// from what Envoy is known to do, odd habits and crashes included, and is no
// independent witness of it.
type EnvoyChecker struct {
	opts EnvoyCheckerOptions
	rand *rand.Rand // used by Run only

	mu         sync.Mutex
	stats      EnvoyCheckerStats
	clusters   []*probedCluster
	last       []byte // the last specifier, encoded
	interval   time.Duration
	reportAt   time.Time // zero: no reports
	received   bool      // a specifier on the present stream
	disconnect context.CancelFunc
}

// EnvoyCheckerStats counts what a fake Envoy saw and did.
type EnvoyCheckerStats struct {
	Streams    int
	Specifiers int // received
	Ignored    int // of those, equal to the one before
	Reports    int
	Empty      int // of those, without a member
	Probes     int
	Clusters   int // now
	Hosts      int // now
	Abrupt     int // clusters that were dropped with their endpoints in them
}

// ErrEnvoyCrashed is wrapped by the error of [EnvoyChecker.Run] when what the
// server sent would crash the Envoy.
var ErrEnvoyCrashed = errors.New("envoy crashed")

func crash(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrEnvoyCrashed, fmt.Sprintf(format, args...))
}

// Envoy's waits before it opens a stream again; each is drawn from up to it.
const (
	backoffBase = time.Second
	backoffMax  = 30 * time.Second
)

// NewEnvoyChecker makes a fake Envoy; [EnvoyChecker.Run] starts it.
func NewEnvoyChecker(opts EnvoyCheckerOptions) (*EnvoyChecker, error) {
	if opts.Conn == nil || opts.ID == "" {
		return nil, fmt.Errorf("%w: Conn and ID are required", errAgentOptions)
	}
	if opts.Probe == nil {
		opts.Probe = func(string, string, time.Time) ProbeOutcome { return ProbePasses }
	}
	return &EnvoyChecker{opts: opts, rand: rand.New(rand.NewPCG(opts.Seed, 0))}, nil //nolint:gosec // jitter
}

// Stats returns what it saw and did so far.
func (e *EnvoyChecker) Stats() EnvoyCheckerStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Clusters = len(e.clusters)
	for _, c := range e.clusters {
		s.Hosts += len(c.hosts)
	}
	return s
}

// Disconnect breaks the present stream, as a network would.
func (e *EnvoyChecker) Disconnect() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.disconnect != nil {
		e.disconnect()
	}
}

// Run probes and reports until ctx ends, and connects again when a stream
// breaks; probing goes on in between. It returns an error that wraps
// ErrEnvoyCrashed when the server made it crash, else nil.
func (e *EnvoyChecker) Run(ctx context.Context) error {
	wait := time.Duration(0)
	for failures := 0; ; failures++ {
		received, err := e.connected(ctx, wait)
		if errors.Is(err, ErrEnvoyCrashed) || ctx.Err() != nil {
			if ctx.Err() != nil && !errors.Is(err, ErrEnvoyCrashed) {
				err = nil
			}
			return err
		}
		if received {
			failures = 0
		}
		most := min(backoffMax, backoffBase<<min(failures, 5))
		wait = time.Duration(e.rand.Int64N(int64(most))) + 1
	}
}

// connected waits, probing, and then serves one stream until it breaks.
func (e *EnvoyChecker) connected(ctx context.Context, wait time.Duration) (received bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	e.reportAt, e.received, e.disconnect = time.Time{}, false, nil
	e.mu.Unlock()
	if err := e.work(ctx, time.After(wait), nil, nil); err != nil || ctx.Err() != nil {
		return false, err
	}
	stream, err := healthv3.NewHealthDiscoveryServiceClient(e.opts.Conn).StreamHealthCheck(ctx)
	if err != nil {
		return false, nil // it tries again
	}
	if err := e.hello(stream); err != nil {
		return false, nil // the same
	}
	e.mu.Lock()
	e.stats.Streams++
	e.disconnect = cancel
	e.mu.Unlock()
	specs := make(chan *healthv3.HealthCheckSpecifier)
	broken := make(chan time.Time)
	go func() { // ends with the stream, and with ctx
		defer close(broken)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case specs <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	err = e.work(ctx, broken, specs, stream)
	cancel()
	<-broken
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.received, err
}

// hello sends the first message, which holds the node and the capabilities;
// they are always HTTP and TCP.
func (e *EnvoyChecker) hello(stream healthv3.HealthDiscoveryService_StreamHealthCheckClient) error {
	r := &healthv3.HealthCheckRequest{
		Node: &corev3.Node{Id: e.opts.ID, Cluster: "checkers", UserAgentName: "envoy", Locality: protoLocality(e.opts.Locality)},
		Capability: &healthv3.Capability{HealthCheckProtocols: []healthv3.Capability_Protocol{
			healthv3.Capability_HTTP, healthv3.Capability_TCP,
		}},
	}
	m := &healthv3.HealthCheckRequestOrEndpointHealthResponse{
		RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{HealthCheckRequest: r},
	}
	if e.opts.Build >= Envoy2018 {
		return sendBare(stream, r)
	}
	return stream.Send(m)
}

// sendBare sends a request without the message around it: its fields become
// unknown fields of the right message, which go out as they are.
func sendBare(stream healthv3.HealthDiscoveryService_StreamHealthCheckClient, r *healthv3.HealthCheckRequest) error {
	data, err := proto.Marshal(r)
	if err != nil {
		return err
	}
	m := &healthv3.HealthCheckRequestOrEndpointHealthResponse{}
	m.ProtoReflect().SetUnknown(data)
	return stream.Send(m)
}

// work probes and reports until the stream breaks or the wait is over.
func (e *EnvoyChecker) work(
	ctx context.Context, until <-chan time.Time, specs <-chan *healthv3.HealthCheckSpecifier,
	stream healthv3.HealthDiscoveryService_StreamHealthCheckClient,
) error {
	for {
		timer := time.NewTimer(e.nextEvent(time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-until:
			timer.Stop()
			return nil
		case m := <-specs:
			timer.Stop()
			if err := e.apply(m, time.Now()); err != nil {
				return err
			}
		case <-timer.C:
			now := time.Now()
			e.probe(now)
			report, err := e.report(now)
			if err != nil {
				return err
			}
			if report == nil || stream == nil {
				continue
			}
			if broken := stream.Send(report); broken != nil {
				return nil //nolint:nilerr // a stream that breaks is opened again
			}
		}
	}
}
