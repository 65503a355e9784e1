package checker

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
)

// Bounds of a specifier.
const (
	mostClusters   = 20_000
	mostChecks     = 8 // of a cluster
	mostNameLength = 1024

	defaultReportInterval = time.Second
	leastReportInterval   = 10 * time.Millisecond
)

// desired is a validated specifier.
type desired struct {
	interval   time.Duration // between reports; 0 = none
	clusters   []desiredCluster
	duplicates int     // clusters that repeat a name
	problems   []error // what was put right or left out, beside refused clusters
}

// desiredCluster is one cluster of it. With err it is refused, and has a name
// only.
type desiredCluster struct {
	name      string
	err       error
	checks    []*check
	groups    []desiredGroup
	skipped   []error // endpoints that are left out
	endpoints int     // that are not
}

type desiredGroup struct {
	key       string
	locality  *corev3.Locality
	endpoints []desiredEndpoint
}

type desiredEndpoint struct {
	key     string // of locality and endpoint
	address *corev3.Address
	target  Target
}

// canonical is how messages are compared.
var canonical = proto.MarshalOptions{Deterministic: true}

// parse validates a specifier. It never fails as a whole: what is wrong is
// left out and told.
func parse(spec *healthv3.HealthCheckSpecifier, hook dialFunc) *desired {
	d := &desired{interval: defaultReportInterval}
	if i := spec.GetInterval(); i != nil {
		switch got := i.AsDuration(); {
		case i.CheckValid() != nil || got < 0 || got > mostInterval:
			d.problems = append(d.problems, fmt.Errorf("interval %s: want 0 to %s; taken as %s", got, mostInterval, defaultReportInterval))
		case got > 0:
			d.interval = max(got, leastReportInterval)
		default:
			d.interval = 0
		}
	}
	seen := make(map[string]bool)
	for _, m := range spec.GetClusterHealthChecks() {
		name := m.GetClusterName()
		if name != "" && seen[name] {
			d.duplicates++
			continue
		}
		if len(d.clusters) == mostClusters {
			d.problems = append(d.problems, fmt.Errorf("more than %d clusters: the others are left out", mostClusters))
			break
		}
		seen[name] = true
		d.clusters = append(d.clusters, parseCluster(m, hook))
	}
	return d
}

func parseCluster(m *healthv3.ClusterHealthCheck, hook dialFunc) desiredCluster {
	c := desiredCluster{name: m.GetClusterName()}
	if len(c.name) > mostNameLength {
		c.err = fmt.Errorf("cluster_name of %d bytes: want at most %d", len(c.name), mostNameLength)
		return c
	}
	if c.checks, c.err = parseChecks(m, hook); c.err != nil {
		return c
	}
	seen := make(map[string]bool)
	groups := make(map[string]int)
	for _, le := range m.GetLocalityEndpoints() {
		where, err := canonical.Marshal(le.GetLocality())
		if err != nil {
			c.skipped = append(c.skipped, fmt.Errorf("locality: %w", err))
			continue
		}
		key := string(where)
		at, ok := groups[key]
		if !ok { // a locality may stand twice
			at = len(c.groups)
			groups[key] = at
			c.groups = append(c.groups, desiredGroup{key: key, locality: le.GetLocality()})
		}
		c.parseEndpoints(&c.groups[at], le.GetEndpoints(), seen)
	}
	return c
}

// parseEndpoints takes what a checker reads of an endpoint: its address and
// its health_check_config.
func (c *desiredCluster) parseEndpoints(g *desiredGroup, endpoints []*endpointv3.Endpoint, seen map[string]bool) {
	for _, e := range endpoints {
		if e.GetHealthCheckConfig().GetDisableActiveHealthCheck() {
			continue
		}
		t, err := targetOf(c.name, e)
		if err != nil {
			c.skipped = append(c.skipped, fmt.Errorf("endpoint %w", err))
			continue
		}
		what, err := canonical.Marshal(&endpointv3.Endpoint{Address: e.GetAddress(), HealthCheckConfig: e.GetHealthCheckConfig()})
		if err != nil {
			c.skipped = append(c.skipped, fmt.Errorf("endpoint: %w", err))
			continue
		}
		key := g.key + "\xff" + string(what) // no proto tag is 0xff
		if seen[key] {
			continue
		}
		seen[key] = true
		c.endpoints++
		g.endpoints = append(g.endpoints, desiredEndpoint{key: key, address: e.GetAddress(), target: t})
	}
}

func parseChecks(m *healthv3.ClusterHealthCheck, hook dialFunc) ([]*check, error) {
	if n := len(m.GetHealthChecks()); n == 0 || n > mostChecks {
		return nil, fmt.Errorf("health_checks: %d of them: want 1 to %d", n, mostChecks)
	}
	dial, err := dialer(hook, m.GetUpstreamBindConfig())
	if err != nil {
		return nil, err
	}
	bind, err := canonical.Marshal(m.GetUpstreamBindConfig())
	if err != nil {
		return nil, fmt.Errorf("upstream_bind_config: %w", err)
	}
	var out []*check
	seen := make(map[string]bool)
	for i, hc := range m.GetHealthChecks() {
		if hc == nil {
			return nil, errors.New("health_checks: a null entry")
		}
		socket := chooseSocket(m.GetTransportSocketMatches(), hc.GetTransportSocketMatchCriteria())
		key, err := checkKey(hc, socket, bind)
		if err != nil {
			return nil, fmt.Errorf("health_checks[%d]: %w", i, err)
		}
		if seen[key] {
			continue // to probe the same twice tells nothing more
		}
		seen[key] = true
		l := link{dial: dial}
		if l.tls, err = newTLS(socket, hc.GetTlsOptions().GetAlpnProtocols()); err != nil {
			return nil, fmt.Errorf("health_checks[%d]: %w", i, err)
		}
		c, err := newCheck(hc, l)
		if err != nil {
			return nil, fmt.Errorf("health_checks[%d]: %w", i, err)
		}
		c.key = key
		out = append(out, c)
	}
	return out, nil
}

// checkKey holds all that decides how a check probes.
func checkKey(hc *corev3.HealthCheck, socket *corev3.TransportSocket, bind []byte) (string, error) {
	what, err := canonical.Marshal(hc)
	if err != nil {
		return "", err
	}
	over, err := canonical.Marshal(socket)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d/%d/%s%s%s", len(what), len(over), what, over, bind), nil
}

// mostRegex bounds a pattern; Go's regular expressions run in linear time.
const mostRegex = 1024

// newMatcher turns a StringMatcher into a function.
func newMatcher(m *matcherv3.StringMatcher) (func(string) bool, error) {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	switch kind := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		want := fold(kind.Exact)
		return func(s string) bool { return fold(s) == want }, nil
	case *matcherv3.StringMatcher_Prefix:
		want := fold(kind.Prefix)
		return func(s string) bool { return strings.HasPrefix(fold(s), want) }, nil
	case *matcherv3.StringMatcher_Suffix:
		want := fold(kind.Suffix)
		return func(s string) bool { return strings.HasSuffix(fold(s), want) }, nil
	case *matcherv3.StringMatcher_Contains:
		want := fold(kind.Contains)
		return func(s string) bool { return strings.Contains(fold(s), want) }, nil
	case *matcherv3.StringMatcher_SafeRegex:
		text := kind.SafeRegex.GetRegex()
		if text == "" || len(text) > mostRegex {
			return nil, errors.New("safe_regex: want 1 to 1024 bytes")
		}
		re, err := regexp.Compile(`^(?:` + text + `)$`)
		if err != nil {
			return nil, errors.New("safe_regex: not a regular expression")
		}
		return re.MatchString, nil
	default:
		return nil, errors.New("string matcher: want exact, prefix, suffix, contains or safe_regex")
	}
}
