package config

import (
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/plural"
)

// Bounds of health checks. Probes more often than that are load, not checks.
const (
	MinCheckInterval = 100 * time.Millisecond
	MaxCheckInterval = time.Hour
	MinCheckTimeout  = 10 * time.Millisecond

	maxHealthChecks = 8 // of a service
)

var (
	thresholdRange = strict.Range{Min: 1, Max: 1000, Unit: "probes"}
	checkersRange  = strict.Range{
		Min: 1, Max: 16, Unit: "checkers",
		ZeroHint: "remove health_checks to have the endpoints not probed",
	}
)

// healthChecks reads the list of health checks of a service.
func (r *serviceReader) healthChecks(v strict.Value) []isobar.HealthCheck {
	items, ok := v.List()
	r.checksBad, r.checksAt = !ok, &v
	if len(items) > maxHealthChecks {
		v.Errorf("keep the most important checks", "%d health checks, more than %d", len(items), maxHealthChecks)
		return nil
	}
	out := make([]isobar.HealthCheck, 0, len(items))
	for _, item := range items {
		out = append(out, readHealthCheck(item))
	}
	if len(out) == 0 {
		return nil
	}
	if len(out) > 1 {
		v.Warnf("keep one check", "Envoy keeps one state for an endpoint, so with several checks the one that spoke last decides")
	}
	return out
}

// readHealthCheck reads one check over the defaults.
func readHealthCheck(v strict.Value) isobar.HealthCheck {
	c := isobar.HealthCheck{
		Interval:           isobar.DefaultCheckInterval,
		Timeout:            isobar.DefaultCheckTimeout,
		UnhealthyThreshold: isobar.DefaultUnhealthyThreshold,
		HealthyThreshold:   isobar.DefaultHealthyThreshold,
	}
	var timeoutAt, jitterAt *strict.Value
	protocols := 0
	protocol := func(p isobar.CheckProtocol, read func(strict.Value)) strict.Field {
		return strict.Field{Name: p.String(), Read: func(v strict.Value) {
			protocols++
			c.Protocol = p
			read(v)
		}}
	}
	ok := v.Object([]strict.Field{
		protocol(isobar.CheckHTTP, func(v strict.Value) { c.HTTP = readHTTPCheck(v) }),
		protocol(isobar.CheckTCP, func(v strict.Value) { c.TCP = readTCPCheck(v) }),
		protocol(isobar.CheckGRPC, func(v strict.Value) { c.GRPC = readGRPCCheck(v) }),
		protocol(isobar.CheckRedis, func(v strict.Value) { c.Redis = readRedisCheck(v) }),
		durationField("interval", MinCheckInterval, MaxCheckInterval, &c.Interval, nil),
		durationField("timeout", MinCheckTimeout, MaxCheckInterval, &c.Timeout, &timeoutAt),
		durationField("jitter", 0, MaxCheckInterval, &c.Jitter, &jitterAt),
		thresholdField("unhealthy_threshold", &c.UnhealthyThreshold),
		thresholdField("healthy_threshold", &c.HealthyThreshold),
		boolField("tls", &c.TLS),
	})
	if ok && protocols != 1 {
		v.Errorf("give one of http, tcp, grpc and redis; tcp: {} only connects", "%d protocols for one check", protocols)
	}
	switch {
	case timeoutAt == nil:
		c.Timeout = min(c.Timeout, c.Interval)
	case c.Timeout > c.Interval:
		timeoutAt.Errorf("make it shorter, or probe less often", "the timeout of %s is longer than the interval of %s", c.Timeout, c.Interval)
	}
	if jitterAt != nil && c.Jitter > c.Interval {
		jitterAt.Errorf("make it shorter, or probe less often", "the jitter of %s is longer than the interval of %s", c.Jitter, c.Interval)
	}
	return c
}

// durationField reads a duration and remembers where it stands.
func durationField(name string, lo, hi time.Duration, into *time.Duration, at **strict.Value) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		d, ok := v.Duration(lo, hi)
		if !ok {
			return
		}
		*into = d
		if at != nil {
			*at = &v
		}
	}}
}

func thresholdField(name string, into *uint32) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if n, ok := v.Int(thresholdRange); ok {
			*into = uint32(n) //nolint:gosec // within thresholdRange
		}
	}}
}

// readCheckers reads how many checkers probe each endpoint, over the defaults.
func readCheckers(v strict.Value) isobar.Checkers {
	c := isobar.Checkers{Count: isobar.DefaultCheckerCount, Domains: isobar.DefaultCheckerDomains}
	at := v
	ok := v.Object([]strict.Field{
		intField("count", &c.Count, checkersRange),
		{Name: "domains", Read: func(v strict.Value) {
			at = v
			intField("", &c.Domains, checkersRange).Read(v)
		}},
	})
	if ok && c.Domains > c.Count {
		at.Errorf("raise count, or write domains: 1 if checkers in one zone may decide alone",
			"%s can't be in %d failure domains", plural.Count(c.Count, "checker", "checkers"), c.Domains)
	}
	return c
}

func intField(name string, into *int, r strict.Range) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if n, ok := v.Int(r); ok {
			*into = int(n)
		}
	}}
}

// checkHealth fills in what depends on there being health checks, and warns of
// what has no effect without them.
func (r *serviceReader) checkHealth(s *isobar.Service) {
	if len(s.HealthChecks) > 0 {
		if r.checkersAt == nil {
			s.Checkers = isobar.Checkers{Count: isobar.DefaultCheckerCount, Domains: isobar.DefaultCheckerDomains}
		}
		r.checkHosts(s)
		return
	}
	if r.checksBad {
		return
	}
	if r.checkersAt != nil {
		r.checkersAt.Warnf("add health_checks, or remove it", "checkers have nothing to do without health_checks")
	}
}

// checkHosts refuses checks that would take a name with a slash for their host:
// servers answer such a request with 400, so that Envoy finds every endpoint unhealthy.
func (r *serviceReader) checkHosts(s *isobar.Service) {
	if !strings.Contains(s.Name, "/") {
		return
	}
	for i := range s.HealthChecks {
		switch c := &s.HealthChecks[i]; {
		case c.HTTP != nil && c.HTTP.Host == "":
			r.checksAt.Errorf("add host to the http check", "the name %q is the default of the Host header, which can't have a slash", s.Name)
		case c.GRPC != nil && c.GRPC.Authority == "":
			r.checksAt.Errorf("add authority to the grpc check", "the name %q is the default of the authority, which can't have a slash", s.Name)
		}
	}
}
