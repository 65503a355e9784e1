package checker

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/hds/convert"
)

// maxSpecifier is the most bytes of one message from the server: more than
// mostEndpoints take.
const maxSpecifier = 32 << 20

// session is one stream to the management server.
type session struct {
	checker *Checker
	stream  healthv3.HealthDiscoveryService_StreamHealthCheckClient
	timer   *time.Timer
	due     time.Time // of the next report; zero = none
	began   bool      // the server has answered
}

// talk keeps one stream until it breaks or ctx ends. It reports whether the
// server answered.
func (c *Checker) talk(ctx context.Context) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.client.StreamHealthCheck(ctx, grpc.MaxCallRecvMsgSize(maxSpecifier))
	if err != nil {
		return false, err
	}
	if err := stream.Send(c.hello()); err != nil {
		_, err = stream.Recv() // which knows why
		return false, err
	}
	s := &session{checker: c, stream: stream, timer: time.NewTimer(time.Hour)}
	defer s.timer.Stop()
	received := make(chan *healthv3.HealthCheckSpecifier)
	broken := make(chan error, 1)
	go func() { broken <- receive(ctx, stream, received) }()
	for {
		select {
		case spec := <-received:
			s.specifier(ctx, spec)
		case <-s.timer.C:
			err = s.report()
		case err := <-broken:
			return s.began, err
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				cancel() // the message, not the stream, is at fault
			}
			return s.began, ending(received, broken)
		}
	}
}

// ending waits for what the server says at the end of a stream.
func ending(received <-chan *healthv3.HealthCheckSpecifier, broken <-chan error) error {
	for {
		select {
		case <-received: // too late
		case err := <-broken:
			return err
		}
	}
}

// receive hands on what comes until the stream ends.
func receive(ctx context.Context, stream healthv3.HealthDiscoveryService_StreamHealthCheckClient, to chan<- *healthv3.HealthCheckSpecifier) error {
	for {
		spec, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case to <- spec:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hello is the first message: who asks, and what it can probe. The protocol's
// capabilities have no word for gRPC, so a client feature says it.
func (c *Checker) hello() *upstream {
	l := c.opts.Locality
	return &upstream{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{
		HealthCheckRequest: &healthv3.HealthCheckRequest{
			Node: &corev3.Node{
				Id: c.opts.ID, Cluster: c.opts.Cluster,
				Locality:             &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone},
				UserAgentName:        UserAgent,
				ClientFeatures:       []string{convert.FeatureGRPCChecks},
				UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: c.opts.Version},
			},
			Capability: &healthv3.Capability{HealthCheckProtocols: []healthv3.Capability_Protocol{
				healthv3.Capability_HTTP, healthv3.Capability_TCP, healthv3.Capability_REDIS,
			}},
		},
	}}
}

// specifier takes a message: the full desired state. One that says what the
// last one said changes nothing, but a new stream begins to report.
func (s *session) specifier(ctx context.Context, spec *healthv3.HealthCheckSpecifier) {
	c := s.checker
	s.began = true
	c.metrics.connected.Set(1)
	content, err := canonical.Marshal(spec)
	sum := sha256.Sum256(content)
	if err == nil && c.applied && sum == c.content {
		c.metrics.unchanged.Inc()
	} else {
		if !c.hand(ctx, parse(spec, c.opts.Dial)) {
			return
		}
		c.applied, c.content = err == nil, sum
		c.metrics.specifiers.Inc()
		now := c.loop.current.Load()
		c.log.info("a new specifier", slog.Int("clusters", len(now.clusters)), slog.Int("endpoints", now.hosts),
			slog.Duration("report_interval", now.interval))
	}
	s.arm(c.loop.current.Load().interval)
}

// hand gives a specifier to the loop and waits until it counts.
func (c *Checker) hand(ctx context.Context, d *desired) bool {
	a := apply{desired: d, done: make(chan struct{})}
	select {
	case c.loop.applies <- a:
	case <-ctx.Done():
		return false
	}
	select {
	case <-a.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// arm sets the time of the next report. A specifier never puts it off: a
// server that sends many would hear nothing.
func (s *session) arm(interval time.Duration) {
	if interval == 0 {
		s.due = time.Time{}
		s.timer.Stop()
		return
	}
	due := time.Now().Add(interval)
	if s.due.IsZero() || due.Before(s.due) {
		s.due = due
		s.timer.Reset(interval)
	}
}

// report sends what is known now.
func (s *session) report() error {
	c := s.checker
	now := c.loop.current.Load()
	s.due = time.Time{}
	s.arm(now.interval)
	if err := s.stream.Send(c.reporter.report(now)); err != nil {
		return err
	}
	c.metrics.reports.Inc()
	return nil
}

// upstream is what a checker sends: a request, then reports.
type upstream = healthv3.HealthCheckRequestOrEndpointHealthResponse

// reporter makes reports. It keeps the message between them: the shape changes
// with specifiers only, and the statuses are few bytes.
type reporter struct {
	built   *state
	message *upstream
	entries []entry
}

// entry is a host and the place of its status in the message.
type entry struct {
	host   *host
	health *healthv3.EndpointHealth
}

// report returns the message for a state as it is now, valid until the next
// call. Each endpoint stands in it twice: under its cluster and locality, and
// in the flat list that older servers read. Endpoints that this machine can't
// probe are left out: to servers a missing entry is no verdict.
func (r *reporter) report(s *state) *upstream {
	unknown := 0
	if r.built == s {
		for i := range r.entries {
			e := &r.entries[i]
			status := e.host.load()
			e.health.HealthStatus = status
			if status == corev3.HealthStatus_UNKNOWN {
				unknown++
			}
		}
	}
	if r.built != s || unknown > 0 || len(r.entries) < s.hosts {
		r.build(s)
	}
	return r.message
}

func (r *reporter) build(s *state) {
	resp := &healthv3.EndpointHealthResponse{
		EndpointsHealth:        make([]*healthv3.EndpointHealth, 0, s.hosts), //nolint:staticcheck // older servers read it
		ClusterEndpointsHealth: make([]*healthv3.ClusterEndpointsHealth, 0, len(s.clusters)),
	}
	r.built = s
	r.entries = make([]entry, 0, s.hosts)
	for _, c := range s.clusters {
		ceh := &healthv3.ClusterEndpointsHealth{ClusterName: c.name}
		for _, g := range c.groups {
			leh := &healthv3.LocalityEndpointsHealth{
				Locality:        g.locality,
				EndpointsHealth: make([]*healthv3.EndpointHealth, 0, len(g.hosts)),
			}
			for _, h := range g.hosts {
				status := h.load()
				if status == corev3.HealthStatus_UNKNOWN {
					continue
				}
				eh := &healthv3.EndpointHealth{Endpoint: &endpointv3.Endpoint{Address: h.address}, HealthStatus: status}
				r.entries = append(r.entries, entry{host: h, health: eh})
				leh.EndpointsHealth = append(leh.EndpointsHealth, eh)
				resp.EndpointsHealth = append(resp.EndpointsHealth, eh) //nolint:staticcheck // older servers read it
			}
			if len(leh.GetEndpointsHealth()) > 0 {
				ceh.LocalityEndpointsHealth = append(ceh.LocalityEndpointsHealth, leh)
			}
		}
		resp.ClusterEndpointsHealth = append(resp.ClusterEndpointsHealth, ceh)
	}
	r.message = &upstream{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{EndpointHealthResponse: resp}}
}

// statusName is a status as logs and metrics write it.
func statusName(s corev3.HealthStatus) string { return strings.ToLower(s.String()) }
