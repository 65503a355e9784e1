package config

import (
	"bytes"
	"log/slog"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// readFile reads the root of a configuration file over the defaults in c. The
// order of the fields here is the order of reading: defaults come before the
// services that use them, wherever they stand in the file.
func readFile(root strict.Value, c *Config) {
	var named []placedRegion
	var listed []placedName
	var all listeners
	root.Object(append([]strict.Field{
		{Name: "xds", Read: func(v strict.Value) { all.xds = readXDS(v, c) }},
		{Name: "admin", Read: func(v strict.Value) { all.admin = readAdmin(v, &c.Admin) }},
		interval("report_interval", &c.ReportInterval),
		interval("tick", &c.Tick),
		{Name: "n1_interval", Read: func(v strict.Value) {
			if d, ok := v.Duration(0, MaxN1Interval); ok {
				c.N1Interval = d
			}
		}},
		{Name: "state_dir", Read: func(v strict.Value) { readStateDir(v, &c.StateDir) }},
		{Name: "stop_spread", Read: func(v strict.Value) {
			if d, ok := v.Duration(0, MaxStopSpread); ok {
				c.StopSpread = d
			}
		}},
		{Name: "degradation", Read: func(v strict.Value) { readDegradation(v, &c.Degradation, c.ReportInterval) }},
		{Name: "trace", Read: func(v strict.Value) { c.Trace = readTrace(v) }},
		{Name: "metrics", Read: func(v strict.Value) { readMetrics(v, &c.Live) }},
		{Name: "log", Read: func(v strict.Value) { readLog(v, &c.Log) }},
		{Name: "replicas", Read: func(v strict.Value) {
			c.Replicas, all.replicas = readReplicas(v)
		}},
		{Name: "defaults", Read: func(v strict.Value) { readDefaults(v, &c.Defaults) }},
		{Name: "network", Read: func(v strict.Value) { c.Network = readNetwork(v, &named) }},
		{Name: "services", Read: func(v strict.Value) { c.Services = readServices(v, c.Defaults) }},
		{Name: "discovery", Read: func(v strict.Value) { c.Discovery = readDiscovery(v, c.Defaults, &listed) }},
	}, append(deeper(), renamed(map[string]string{"source": "discovery"})...)...))
	all.check(c)
	checkListed(listed, c.Services)
	if c.Discovery.XDS == nil && c.Discovery.Kubernetes == nil { // else nobody knows where services run
		checkRegions(named, append(slices.Clone(c.Services), c.Discovery.DNS.services()...))
	}
	if c.Replicas != nil && all.replicas != nil {
		checkLifetimes(all.replicas, c.Services)
	}
	if c.Network == nil {
		c.Network, _ = isobar.NewNetwork(nil) // no rules, no error
	}
}

func interval(name string, into *time.Duration) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if d, ok := v.Duration(MinInterval, MaxInterval); ok {
			*into = d
		}
	}}
}

// readXDS reads the part of clients. It returns where their listeners stand.
func readXDS(v strict.Value, c *Config) (at [3]*strict.Value) {
	x := &c.XDS
	l := listener{address: x.Listen}
	var old, rest listener
	v.Object([]strict.Field{
		l.listenField(), boolField("insecure", &l.insecure),
		{Name: "max_streams", Read: func(v strict.Value) {
			if n, ok := v.Int(strict.Range{Min: 1, Max: 1e6, ZeroHint: "leave it out for 40000"}); ok {
				x.MaxStreams = int(n)
			}
		}},
		boolField("endpoint_load", &x.EndpointLoad),
		{Name: "envoy_endpoints", Read: func(v strict.Value) {
			if n, ok := v.Int(strict.Range{Min: 1, Max: 1e6, ZeroHint: "leave it out for 500"}); ok {
				x.EnvoyEndpoints = int(n)
			}
		}},
		tlsField(&l, &x.TLS),
		{Name: "identities", Read: func(v strict.Value) {
			c.Identities = readIdentities(v, x.TLS)
			c.SubscribedOnly = true // unless reports says else
		}},
		reportsField(&c.SubscribedOnly),
		{Name: "admission", Read: func(v strict.Value) { readAdmission(v, &x.Admission) }},
		{Name: "proxy_protocol", Read: func(v strict.Value) { x.Balancers = readProxyProtocol(v) }},
		old.listenFieldNamed("listen_2017"), rest.listenFieldNamed("listen_rest"),
		{Name: "clients_2017", Read: func(v strict.Value) { x.Clients2017 = readPatterns(v) }},
	})
	x.Listen, x.Insecure = l.checked()
	old.insecure, rest.insecure = l.insecure, l.insecure
	old.secure, rest.secure = l.secure, l.secure
	x.Listen2017, _ = old.checked()
	x.ListenREST, _ = rest.checked()
	return [3]*strict.Value{l.at, old.at, rest.at}
}

func readAdmin(v strict.Value, a *Admin) (at *strict.Value) {
	l := listener{address: a.Listen}
	v.Object([]strict.Field{
		l.listenField(), boolField("insecure", &l.insecure), boolField("writable", &a.Writable),
		{Name: "hosts", Read: func(v strict.Value) { a.Hosts = readHosts(v) }},
		tlsField(&l, &a.TLS),
		pathField("token_file", &a.TokenFile),
		tokenForField(a),
		boolField("console", &a.Console), basePathField(&a.BasePath),
	})
	a.Listen, a.Insecure = l.checked()
	return l.at
}

// readPatterns reads patterns of the names of nodes.
func readPatterns(v strict.Value) []string {
	items, _ := v.List()
	var out []string
	for _, item := range items {
		s, ok := item.Text()
		if !ok {
			continue
		}
		if _, err := path.Match(s, ""); err != nil || s == "" {
			item.Errorf("write the name of a node, with * for any characters but a slash", "%q is not a pattern", s)
			continue
		}
		out = append(out, s)
	}
	return out
}

// hostName is a DNS name. IP addresses are let in anyway.
var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$`)

// readHosts reads the names by which the admin interface may be addressed.
func readHosts(v strict.Value) []string {
	const longest = 253
	items, _ := v.List()
	var out []string
	for _, item := range items {
		s, ok := item.Text()
		if !ok {
			continue
		}
		s = strings.TrimSuffix(strings.ToLower(s), ".")
		if len(s) > longest || !hostName.MatchString(s) {
			item.Errorf("write the name alone, without scheme and port, for example isobar.example", "%q is not a host name", s)
			continue
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func readStateDir(v strict.Value, into *string) {
	s, ok := v.Text()
	switch {
	case !ok:
	case strings.ContainsFunc(s, unicode.IsControl):
		v.Errorf("write the path on one line", "%q holds a control character", s)
	case s == "none":
		v.Errorf("give a directory that survives a restart, for example "+DefaultStateDir, "state has to be kept somewhere")
	default:
		*into = s
	}
}

func readLog(v strict.Value, l *Log) {
	v.Object([]strict.Field{
		{Name: "format", Read: func(v strict.Value) {
			if s, ok := v.Enum("text", "json"); ok {
				l.JSON = s == "json"
			}
		}},
		{Name: "level", Read: func(v strict.Value) {
			s, ok := v.Enum("debug", "info", "warn", "error")
			if ok {
				l.Level = map[string]slog.Level{
					"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
				}[s]
			}
		}},
	})
}

func readDefaults(v strict.Value, d *Defaults) {
	v.Object(append([]strict.Field{
		modeField(&d.Mode), policyField(&d.Policy),
		isolationField(&d.Isolation), residencyField(&d.Residency),
		floatField("failover_threshold", &d.FailoverThreshold, failoverRange),
		promoteField(&d.Promote), floatField("max_shift", &d.MaxShift, shiftRange),
		floatField("max_shed", &d.MaxShed, shedRange),
		floatField("ceiling", &d.Ceiling, ceilingRange),
		trustField(&d.CapacityTrust),
		floatField("service_time_ms", &d.ServiceTimeMS, serviceTimeRange), floatField("error_cost_ms", &d.ErrorCostMS, errorCostRange),
		limitsField(&d.Limits),
		{Name: "tls", Elsewhere: "give it to each of the services: it names their certificates"},
	}, clusterFields(&d.Cluster, &clusterPlaces{})...))
}

const (
	// maxAssignment is what gRPC clients accept of one message, unless they were
	// built to accept more.
	maxAssignment = 4 << 20

	// endpointFrame is what an endpoint takes in an encoded assignment beside
	// the text of its IP address: five nested messages, port, health, weight.
	endpointFrame = 22

	// addressFrame is what an address takes beside its text.
	addressFrame = 11
)

// checkSize warns of a service whose assignment clients may refuse for its
// size. Every endpoint occurs in it once.
func checkSize(at strict.Value, s *isobar.Service) {
	bytes, endpoints := 0, 0
	for i := range s.Localities {
		bytes += metadataBytes(s.Localities[i].Metadata)
		for j := range s.Localities[i].Endpoints {
			bytes += sizeOf(&s.Localities[i].Endpoints[j])
			endpoints++
		}
	}
	if bytes > maxAssignment {
		at.Warnf("split the service", "%d endpoints take about %.1f MiB on the wire; gRPC clients accept 4 MiB at most, unless built otherwise",
			endpoints, float64(bytes)/(1<<20))
	}
}

// sizeOf is about what an endpoint takes in an encoded assignment.
func sizeOf(e *isobar.Endpoint) int {
	bytes := endpointFrame + hostBytes(e.Address)
	if d := e.Details; d != nil {
		bytes += len(d.Hostname) + metadataBytes(d.Metadata)
		for _, more := range d.AdditionalAddresses {
			bytes += addressFrame + hostBytes(more)
		}
	}
	return bytes
}

func hostBytes(address string) int {
	host, _, _ := net.SplitHostPort(address) // "" where it is wrong, which is told
	return len(host)
}

// metadataBytes: nested messages take a little more than the punctuation of
// JSON.
func metadataBytes(m isobar.Metadata) int { return len(m) + len(m)/4 }

// AsJSON returns a document as JSON: unchanged if it looks like JSON, else
// translated from YAML with every value in the line where it stands. file is the
// name that errors carry; the error, if any, is an [*Error].
func AsJSON(file string, data []byte) ([]byte, error) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(data) <= MaxBytes && bytes.HasPrefix(trimmed, []byte("{")) {
		return data, nil
	}
	doc := strict.Parse(file, data)
	root, ok := doc.Root()
	if !ok {
		_, err := doc.Result()
		return nil, err
	}
	return root.JSON(), nil
}
