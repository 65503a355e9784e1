package checker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	redisv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_checkers/redis/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
)

// Bounds of durations that a server may ask for. Whatever is faster than the
// least runs at least, so that no server can make this process spin.
const (
	leastInterval = 10 * time.Millisecond
	mostInterval  = 24 * time.Hour
	mostTimeout   = 10 * time.Minute
)

// check is a validated health check. It is immutable and shared by all
// endpoints of its cluster.
type check struct {
	key      string // equal keys: the same check
	message  *corev3.HealthCheck
	protocol isobar.CheckProtocol
	build    func(Target) (Prober, error)

	timeout            time.Duration
	unhealthyThreshold uint32
	healthyThreshold   uint32

	interval          time.Duration
	unhealthyInterval time.Duration
	unhealthyEdge     time.Duration
	healthyEdge       time.Duration
	noTraffic         time.Duration // 0 = not set: the intervals above count
	noTrafficHealthy  time.Duration
	initialJitter     time.Duration
	jitter            time.Duration
	jitterPercent     uint32
}

// link is how the probes of a check reach endpoints.
type link struct {
	dial  dialFunc
	tls   *tlsSettings // nil = plaintext
	reuse bool
}

// newCheck validates a health check.
func newCheck(hc *corev3.HealthCheck, l link) (*check, error) {
	if hc == nil {
		return nil, errors.New("a health check is null")
	}
	c := &check{message: hc}
	if err := c.setTimes(hc); err != nil {
		return nil, err
	}
	c.unhealthyThreshold, c.healthyThreshold = hc.GetUnhealthyThreshold().GetValue(), hc.GetHealthyThreshold().GetValue()
	if c.unhealthyThreshold == 0 || c.healthyThreshold == 0 {
		return nil, errors.New("unhealthy_threshold and healthy_threshold: both are required, at least 1")
	}
	l.reuse = hc.GetReuseConnection() == nil || hc.GetReuseConnection().GetValue()
	var err error
	switch kind := hc.GetHealthChecker().(type) {
	case *corev3.HealthCheck_HttpHealthCheck_:
		c.protocol = isobar.CheckHTTP
		c.build, err = newHTTP(kind.HttpHealthCheck, l)
	case *corev3.HealthCheck_TcpHealthCheck_:
		c.protocol = isobar.CheckTCP
		c.build, err = newTCP(kind.TcpHealthCheck, l)
	case *corev3.HealthCheck_GrpcHealthCheck_:
		c.protocol = isobar.CheckGRPC
		c.build, err = newGRPC(kind.GrpcHealthCheck, l)
	case *corev3.HealthCheck_CustomHealthCheck_:
		c.protocol = isobar.CheckRedis
		c.build, err = newCustom(kind.CustomHealthCheck, l)
	default:
		return nil, errors.New("no checker: want one of http_health_check, tcp_health_check, grpc_health_check, custom_health_check")
	}
	return c, err
}

// newCustom takes the one custom checker that is known: Redis.
func newCustom(m *corev3.HealthCheck_CustomHealthCheck, l link) (func(Target) (Prober, error), error) {
	if name := m.GetName(); name != "envoy.health_checkers.redis" {
		return nil, fmt.Errorf("custom_health_check: unknown checker %q: want envoy.health_checkers.redis", short(name))
	}
	config := new(redisv3.Redis)
	if m.GetTypedConfig() != nil {
		if err := m.GetTypedConfig().UnmarshalTo(config); err != nil {
			return nil, fmt.Errorf("custom_health_check.typed_config: %w", err)
		}
	}
	return newRedis(config, l)
}

// setTimes reads all durations; those that are not set follow from others.
func (c *check) setTimes(hc *corev3.HealthCheck) error {
	fields := []struct {
		name     string
		from     *durationpb.Duration
		to       *time.Duration
		fallback *time.Duration // nil = 0
		least    time.Duration
	}{
		{"interval", hc.GetInterval(), &c.interval, nil, leastInterval},
		{"unhealthy_interval", hc.GetUnhealthyInterval(), &c.unhealthyInterval, &c.interval, leastInterval},
		{"unhealthy_edge_interval", hc.GetUnhealthyEdgeInterval(), &c.unhealthyEdge, &c.unhealthyInterval, leastInterval},
		{"healthy_edge_interval", hc.GetHealthyEdgeInterval(), &c.healthyEdge, &c.interval, leastInterval},
		{"no_traffic_interval", hc.GetNoTrafficInterval(), &c.noTraffic, nil, leastInterval},
		{"no_traffic_healthy_interval", hc.GetNoTrafficHealthyInterval(), &c.noTrafficHealthy, &c.noTraffic, leastInterval},
		{"initial_jitter", hc.GetInitialJitter(), &c.initialJitter, nil, 0},
		{"interval_jitter", hc.GetIntervalJitter(), &c.jitter, nil, 0},
		{"timeout", hc.GetTimeout(), &c.timeout, nil, 1},
	}
	for _, f := range fields {
		if f.from == nil {
			if f.fallback != nil {
				*f.to = *f.fallback
			}
			continue
		}
		if err := f.from.CheckValid(); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		d := f.from.AsDuration()
		if d < 0 || d > mostInterval || (d == 0 && f.least > 0) {
			return fmt.Errorf("%s %s: want more than 0, at most %s", f.name, d, mostInterval)
		}
		*f.to = max(d, f.least)
	}
	if c.interval == 0 || c.timeout == 0 {
		return errors.New("timeout and interval: both are required, more than 0")
	}
	if c.timeout > mostTimeout {
		return fmt.Errorf("timeout %s: want at most %s", c.timeout, mostTimeout)
	}
	c.jitterPercent = min(hc.GetIntervalJitterPercent(), 1000)
	return nil
}

// usual is the interval between probes of a healthy endpoint.
func (c *check) usual() time.Duration {
	if c.noTraffic > 0 {
		return c.noTrafficHealthy
	}
	return c.interval
}

// wait is the time from the end of a probe to the next one. Clusters under
// HDS carry no traffic, so no_traffic_interval overrides all where it is set.
func (c *check) wait(o Outcome, pending bool, rng *rand.Rand) time.Duration {
	var base time.Duration
	switch {
	case o == Blind:
		base = c.usual()
	case c.noTraffic > 0 && o == Passed && !pending:
		base = c.noTrafficHealthy
	case c.noTraffic > 0:
		base = c.noTraffic
	case o == Passed && pending:
		base = c.healthyEdge
	case o == Passed:
		base = c.interval
	case pending:
		base = c.unhealthyEdge
	default:
		base = c.unhealthyInterval
	}
	return base + upTo(c.jitter, rng) + upTo(base*time.Duration(c.jitterPercent)/100, rng)
}

// upTo is a random duration below d, 0 for 0.
func upTo(d time.Duration, rng *rand.Rand) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rng.Int64N(int64(d)))
}

// short bounds what a server wrote before it goes into an error or a log.
func short(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
