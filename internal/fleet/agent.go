package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar"
)

// AgentKind is the kind of client that an [Agent] takes after.
type AgentKind uint8

// The kinds of agents.
const (
	// KindGRPC names itself as grpc-go does, sends its node in the first
	// message of a stream only, and uses one priority at a time.
	KindGRPC AgentKind = iota
	// KindEnvoy names itself as Envoy does, sends its node in every load
	// report, and spreads over priorities by their health.
	KindEnvoy
)

// Fate is what becomes of requests that an agent sends to a locality.
type Fate uint8

// The fates.
const (
	Served Fate = iota
	// Failed requests are sent there and end in an error, as behind a proxy
	// that does not notice.
	Failed
	// Unconnected localities get no requests: no connection is open, so the
	// client spreads them over the others of the priority, else the next one.
	Unconnected
	// Refused requests find no connection: Envoy reports them as errors that it
	// never issued. To gRPC the locality is unconnected.
	Refused
)

// Split returns the shares of the localities, summing to 1, with which an agent
// obeys (or disobeys) an assignment.
type Split func(*endpointv3.ClusterLoadAssignment) map[isobar.Locality]float64

// AgentOptions says who an agent is and how it behaves. Only Conn and Services
// are required.
type AgentOptions struct {
	Conn     grpc.ClientConnInterface
	ID       string // node.id
	Cluster  string // node.cluster: the client service
	Locality isobar.Locality
	Kind     AgentKind
	Services []string // what it subscribes to
	// Endpoints uses the single EDS service in place of ADS.
	Endpoints bool
	// Silent agents open no load reporting stream.
	Silent bool
	// UserAgent is the name in the agent's node; "" = that of its kind.
	UserAgent string

	// Demand is what the agent wants to send, requests/s; nil = nothing. As
	// all functions here it must be safe for concurrent use and must not call
	// the agent.
	Demand func(service string, now time.Time) float64
	// Landing tells what becomes of requests to a locality; nil = all served.
	Landing func(service string, l isobar.Locality) Fate
	// LatencyMS is the response time behind the gauge of requests in progress,
	// milliseconds; nil = 10.
	LatencyMS func(service string, l isobar.Locality) float64
	// Utilization is what backends report by ORCA, 0 to 1; nil = no ORCA.
	Utilization func(service string, l isobar.Locality) float64
	// Split replaces the way the agent follows assignments, to model a
	// misconfigured client; nil = obey.
	Split Split
	// Accept is asked before an assignment is applied: an error is sent as the
	// text of a NACK. Whatever real clients reject is rejected anyway.
	Accept func(*endpointv3.ClusterLoadAssignment) error

	PushDelay   time.Duration // from the arrival of an assignment to its use and ACK
	ReportDelay time.Duration // from the end of a window to the sending of its report
	Step        time.Duration // resolution of the rates; 0 = 100 ms
}

// Agent is a fake xDS client: it subscribes to assignments, follows them, and
// reports the load that follows from its demand, counted in fractions of requests. It is
// written from what Envoy and gRPC are known to do and is no independent
// witness of it.
type Agent struct {
	opts     AgentOptions
	services []string // sorted

	mu       sync.Mutex
	assigned map[string]*applied
	counts   map[string]*serviceCounts
	advanced time.Time // until when the requests are counted; zero before Run
	nacks    int
	changed  chan struct{} // closed and replaced with every applied assignment
}

// applied is an assignment in use.
type applied struct {
	cla     *endpointv3.ClusterLoadAssignment
	version string
	at      time.Time

	localities []isobar.Locality           // sorted
	cut        []bool                      // per locality: what shares were worked out for
	shares     map[isobar.Locality]float64 // nil before the first use
}

// errAgentOptions marks options that make no agent.
var errAgentOptions = errors.New("bad agent options")

const (
	defaultStep      = 100 * time.Millisecond
	defaultLatencyMS = 10.0
	reconnectDelay   = time.Second
)

// NewAgent makes an agent; [Agent.Run] starts it.
func NewAgent(opts AgentOptions) (*Agent, error) {
	if opts.Conn == nil || len(opts.Services) == 0 {
		return nil, fmt.Errorf("%w: Conn and Services are required", errAgentOptions)
	}
	if opts.PushDelay < 0 || opts.ReportDelay < 0 || opts.Step < 0 {
		return nil, fmt.Errorf("%w: delays must not be negative", errAgentOptions)
	}
	if opts.Step == 0 {
		opts.Step = defaultStep
	}
	services := slices.Compact(slices.Sorted(slices.Values(opts.Services)))
	a := &Agent{
		opts:     opts,
		services: services,
		assigned: make(map[string]*applied, len(services)),
		counts:   make(map[string]*serviceCounts, len(services)),
		changed:  make(chan struct{}),
	}
	for _, s := range services {
		a.counts[s] = newServiceCounts()
	}
	return a, nil
}

// Run keeps the agent's streams open, reconnecting after a second when one
// breaks, until the context ends.
func (a *Agent) Run(ctx context.Context) {
	a.mu.Lock()
	a.advanced = time.Now()
	a.mu.Unlock()
	var streams sync.WaitGroup
	streams.Go(func() { keepOpen(ctx, a.discover) })
	if !a.opts.Silent {
		streams.Go(func() { keepOpen(ctx, a.report) })
	}
	streams.Wait()
}

// keepOpen calls stream again and again until the context ends. What broke a
// stream does not matter: the answer is another one.
func keepOpen(ctx context.Context, stream func(context.Context) error) {
	for ctx.Err() == nil {
		_ = stream(ctx)
		if waitUntil(ctx, time.Now().Add(reconnectDelay)) != nil {
			return
		}
	}
}

// Assignment returns the assignment in use; nil before the first.
func (a *Agent) Assignment(service string) *endpointv3.ClusterLoadAssignment {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ap := a.assigned[service]; ap != nil {
		return ap.cla
	}
	return nil
}

// Version returns the version of the assignment in use; empty before the first.
func (a *Agent) Version(service string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ap := a.assigned[service]; ap != nil {
		return ap.version
	}
	return ""
}

// Shares returns the share of the demand that goes to each locality now, with
// the fate of the localities taken into account; they sum to 1, or there are
// none.
func (a *Agent) Shares(service string) map[isobar.Locality]float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.split(service))
}

// NACKs counts the responses that the agent refused.
func (a *Agent) NACKs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nacks
}

// Totals returns what the agent has sent since Run began.
func (a *Agent) Totals(service string) Totals {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(time.Now())
	l := a.counts[service]
	if l == nil {
		return Totals{}
	}
	t := l.totals
	t.Sites = maps.Clone(l.landed)
	return t
}

// WaitAssigned returns when the assignment in use satisfies ok (nil = there is
// one), or with the context's error.
func (a *Agent) WaitAssigned(ctx context.Context, service string, ok func(*endpointv3.ClusterLoadAssignment) bool) error {
	for {
		a.mu.Lock()
		ap, changed := a.assigned[service], a.changed
		a.mu.Unlock()
		if ap != nil && (ok == nil || ok(ap.cla)) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("no such assignment of %s: %w", service, context.Cause(ctx))
		}
	}
}

// node is the agent's xDS node.
func (a *Agent) node() *corev3.Node {
	n := &corev3.Node{
		Id:      a.opts.ID,
		Cluster: a.opts.Cluster,
		Locality: &corev3.Locality{
			Region: a.opts.Locality.Region, Zone: a.opts.Locality.Zone, SubZone: a.opts.Locality.SubZone,
		},
	}
	if a.opts.Locality.IsZero() {
		n.Locality = nil
	}
	if a.opts.Kind == KindEnvoy {
		n.UserAgentName = cmp.Or(a.opts.UserAgent, "envoy")
		n.ClientFeatures = []string{"envoy.lrs.supports_send_all_clusters"}
		return n
	}
	n.UserAgentName = cmp.Or(a.opts.UserAgent, "gRPC Go")
	n.ClientFeatures = []string{"envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"}
	return n
}
