package config

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// ReservedName is what bootstrap files call the management server's own cluster:
// no service may have that name, or Envoy would ignore it.
const ReservedName = "isobar"

var (
	breakerRange = strict.Range{Min: 1, Max: 1<<32 - 1, ZeroHint: "leave it out for no limit"}
	panicRange   = strict.Range{Max: 100, Unit: "percent"}
)

// maxAltNames bounds the names that an endpoint's certificate may have.
const maxAltNames = 64

// clusterFields are those of a service's clients that `defaults` has, too.
func clusterFields(c *isobar.ClusterSettings, at *clusterPlaces) []strict.Field {
	return []strict.Field{
		{Name: "protocol", Read: func(v strict.Value) {
			if s, ok := v.Enum(isobar.EndpointProtocolNames()...); ok {
				c.Protocol, _ = isobar.ParseEndpointProtocol(s) // one of the names
			}
		}},
		{Name: "connect_timeout", Read: func(v strict.Value) {
			if d, ok := v.Duration(isobar.MinConnectTimeout, isobar.MaxConnectTimeout); ok {
				c.ConnectTimeout = isobar.ConnectTimeout(d)
			}
		}},
		{Name: "request_timeout", Read: func(v strict.Value) {
			if d, ok := v.Duration(isobar.MinRequestTimeout, isobar.MaxRequestTimeout); ok {
				c.RequestTimeout = isobar.RequestTimeout(d)
			}
		}},
		{Name: "circuit_breakers", Read: func(v strict.Value) { c.CircuitBreakers = readCircuitBreakers(v) }},
		{Name: "lb_policy", Read: func(v strict.Value) {
			at.lbPolicy = &v
			if s, ok := v.Enum(isobar.LBPolicyNames()...); ok {
				c.LBPolicy, _ = isobar.ParseLBPolicy(s) // one of the names
			}
		}},
		{Name: "outlier_detection", Read: func(v strict.Value) { c.OutlierDetection = readOutlierDetection(v, c.OutlierDetection) }},
		{Name: "healthy_panic_threshold", Read: func(v strict.Value) {
			if n, ok := v.Int(panicRange); ok {
				percent := uint32(n) //nolint:gosec // within panicRange
				c.HealthyPanicThreshold = &percent
			}
		}},
	}
}

// clusterPlaces are places that checks across fields need.
type clusterPlaces struct{ lbPolicy *strict.Value }

func (p *clusterPlaces) check(s *isobar.Service) {
	if p.lbPolicy != nil && s.ORCA.On && s.LBPolicy != isobar.LBRoundRobin {
		p.lbPolicy.Warnf("remove it, or orca", "lb_policy has no effect with orca: true, which weighs endpoints by their utilization")
	}
}

func readCircuitBreakers(v strict.Value) isobar.CircuitBreakers {
	var b isobar.CircuitBreakers
	limit := func(name string, into *uint32) strict.Field {
		return strict.Field{Name: name, Read: func(v strict.Value) {
			if n, ok := v.Int(breakerRange); ok {
				*into = uint32(n) //nolint:gosec // within breakerRange
			}
		}}
	}
	v.Object([]strict.Field{
		limit("max_connections", &b.MaxConnections), limit("max_pending_requests", &b.MaxPendingRequests),
		limit("max_requests", &b.MaxRequests), limit("max_retries", &b.MaxRetries),
	})
	return b
}

// readOutlierDetection reads the settings of a service over those of `defaults`,
// or those.
func readOutlierDetection(v strict.Value, base isobar.OutlierDetection) isobar.OutlierDetection {
	if v.IsText() {
		if s, ok := v.Text(); ok && s != "none" {
			v.Errorf("write none, or settings such as {failure_percentage_threshold: 95}", "unknown value %.100q", s)
		}
		return isobar.OutlierDetection{Off: true}
	}
	var out isobar.OutlierDetection
	at := v
	fields := make([]strict.Field, 0, isobar.OutlierFields)
	for f := range isobar.OutlierFields {
		spec := f.Spec()
		fields = append(fields, strict.Field{Name: spec.Name, Read: func(v strict.Value) {
			if n, ok := readOutlierSetting(v, spec.Kind); ok {
				out.Set(f, n)
			}
			if f == isobar.OutlierMaxEjectionTime {
				at = v
			}
		}})
	}
	v.Object(fields)
	out = out.Over(base)
	longest, _ := out.Effective(isobar.OutlierMaxEjectionTime, false)
	if least, _ := out.Effective(isobar.OutlierBaseEjectionTime, false); longest < least {
		at.Errorf("make it as long as base_ejection_time, or longer", "max_ejection_time is shorter than base_ejection_time: Envoy refuses that")
	}
	return out
}

func readOutlierSetting(v strict.Value, kind isobar.OutlierKind) (int64, bool) {
	switch kind {
	case isobar.OutlierDuration:
		d, ok := v.Duration(isobar.MinOutlierDuration, isobar.MaxOutlierDuration)
		return int64(d), ok
	case isobar.OutlierSwitch:
		on, ok := v.Bool()
		if on {
			return 1, ok
		}
		return 0, ok
	case isobar.OutlierPercent:
		return v.Int(panicRange)
	case isobar.OutlierCount:
	}
	return v.Int(strict.Range{Min: 1, Max: isobar.MaxOutlierCount})
}

// readEndpointTLS reads how clients use TLS with endpoints. That an
// endpoint's certificate is one of the authority says nothing about whose it is,
// so a name has to be checked.
func readEndpointTLS(v strict.Value) *isobar.EndpointTLS {
	t := &isobar.EndpointTLS{}
	namesGiven := false
	ok := v.Object([]strict.Field{
		{Name: "sni", Read: func(v strict.Value) { readSNI(v, &t.SNI) }},
		required(clientPathField("ca", &t.CA)),
		{Name: "subject_alt_names", Read: func(v strict.Value) { namesGiven, t.SubjectAltNames = true, readAltNames(v) }},
		clientPathField("cert", &t.Cert), clientPathField("key", &t.Key),
		{Name: "grpc", Read: func(v strict.Value) {
			t.GRPC = &isobar.CertificateProviders{}
			v.Object([]strict.Field{required(providerField("ca", &t.GRPC.CA)), providerField("cert", &t.GRPC.Cert)})
		}},
	})
	if !ok {
		return t
	}
	switch {
	case namesGiven:
	case t.SNI != "":
		t.SubjectAltNames = []string{t.SNI}
	default:
		v.Errorf("give sni or subject_alt_names", "nothing says which of the authority's certificates are the endpoints'")
	}
	if (t.Cert == "") != (t.Key == "") {
		v.Errorf("give both, or none", "cert and key belong together")
	}
	return t
}

// clientPathField reads the path of a file at the clients. Envoy's limits are
// those of its system.
func clientPathField(name string, into *string) strict.Field {
	const longest = 4095
	f := pathField(name, into)
	return strict.Field{Name: name, Read: func(v strict.Value) {
		f.Read(v)
		if len(*into) > longest {
			v.Errorf("", "a path of %d bytes, more than %d", len(*into), longest)
		}
	}}
}

// dnsName is a DNS name as certificates and TLS have it.
var dnsName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*$`)

const maxDNSName = 253

func readSNI(v strict.Value, into *string) {
	s, ok := v.Text()
	_, ip := netip.ParseAddr(s)
	switch {
	case !ok:
	case ip == nil:
		v.Errorf("write a DNS name; for an address, leave sni out and give it as one of subject_alt_names",
			"%q is an IP address, which TLS does not take for a server name", s)
	case len(s) > maxDNSName || !dnsName.MatchString(s):
		v.Errorf("write a DNS name, for example checkout.example", "%q is not a DNS name", s)
	default:
		*into = s
	}
}

func readAltNames(v strict.Value) []string {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("leave it out to have sni checked", "is empty")
	}
	if len(items) > maxAltNames {
		v.Errorf("let a URI end with * for those with the same beginning", "%d names, want at most %d", len(items), maxAltNames)
		return nil
	}
	var out []string
	for _, item := range items {
		s, ok := item.Text()
		switch {
		case !ok:
		case !altName(s):
			item.Errorf("write a SPIFFE ID or another URI (a * may end it), a DNS name or an IP address", "%q is not a name that a certificate has", s)
		case slices.Contains(out, s):
			item.Errorf("remove one", "%q is given twice", s)
		default:
			out = append(out, s)
		}
	}
	return out
}

// altName reports whether a text can be a subject alternative name, or the
// beginning of a URI and a *.
func altName(s string) bool {
	const longest = 2048 // bytes of a SPIFFE ID
	if ip, err := netip.ParseAddr(s); err == nil {
		return ip.Zone() == ""
	}
	scheme, rest, isURI := strings.Cut(s, "://")
	if !isURI {
		return len(s) <= maxDNSName && dnsName.MatchString(s)
	}
	rest = strings.TrimSuffix(rest, "*")
	return scheme != "" && rest != "" && len(s) <= longest && printable(s) && ascii(s) && !strings.Contains(rest, "*")
}

// providerField reads the name of an entry of certificate_providers in gRPC's
// bootstrap file.
func providerField(name string, into *string) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		s, ok := v.Text()
		switch {
		case !ok:
		case s == "" || len(s) > maxProbeName || !printable(s):
			v.Errorf("write its key in certificate_providers of the bootstrap file", "%q is not the name of a certificate provider", s)
		default:
			*into = s
		}
	}}
}
