package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// Bounds and defaults of providers.
const (
	DefaultEmptyHold = 5 * time.Minute
	MaxEmptyHold     = 7 * 24 * time.Hour

	defaultDiscoveryNode = "isobar"
)

// Discovery is the section of the providers that list endpoints; nil = the file
// has no such provider.
type Discovery struct {
	// Given reports whether the file has the section. Where it is given without a
	// provider, the services that the provider listed may go.
	Given      bool                 `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	XDS        *XDSDiscovery        `json:",omitempty"` //nolint:tagliatelle // another control plane
	DNS        *DNSDiscovery        `json:",omitempty"` //nolint:tagliatelle // names that DNS resolves
	Kubernetes *KubernetesDiscovery `json:",omitempty"` //nolint:tagliatelle // the Services of a cluster
}

// None reports whether no provider is configured.
func (d *Discovery) None() bool { return d.XDS == nil && d.DNS == nil && d.Kubernetes == nil }

// XDSDiscovery is another control plane, whose endpoint discovery says which
// endpoints some services have.
type XDSDiscovery struct {
	Server   string     // HOST:PORT
	Insecure bool       // plaintext beyond loopback is wanted
	TLS      *ClientTLS // nil = plaintext
	Node     DiscoveryNode
	ADS      bool // over the aggregated stream; else over the endpoint discovery service
	// DefaultLocality is where endpoints without a locality are; zero = they are
	// refused.
	DefaultLocality isobar.Locality
	EmptyHold       time.Duration // how long a service that becomes empty keeps its endpoints
	Services        []ListedService
}

// ClientTLS says how to speak TLS to a server. Files are read when a
// connection is made.
type ClientTLS struct {
	CA         string // file with the certificates to trust; empty = the system's
	Cert, Key  string // files of the client's certificate; empty = none
	ServerName string // name in the server's certificate; empty = the host's
}

// DiscoveryNode is what Isobar calls itself towards another control plane.
type DiscoveryNode struct {
	ID, Cluster string
	Locality    isobar.Locality
}

// ListedService is a service whose endpoints another control plane lists.
type ListedService struct {
	EDSName string         // what the other control plane calls it
	Service isobar.Service // its localities have settings, but no endpoints
	Ceiling float64        // of localities without settings; 0 = isobar.DefaultCeiling
}

// placedName is the name of a listed service and where it is written.
type placedName struct {
	name string
	at   strict.Value
}

// readDiscovery reads the section `discovery`, and adds the names of its services.
func readDiscovery(v strict.Value, d Defaults, names *[]placedName) Discovery {
	out := Discovery{Given: true}
	v.Object([]strict.Field{
		{Name: "xds", Read: func(v strict.Value) { out.XDS = readXDSDiscovery(v, d, names) }},
		{Name: "dns", Read: func(v strict.Value) { out.DNS = readDNSDiscovery(v, d, names) }},
		{Name: "kubernetes", Read: func(v strict.Value) { out.Kubernetes = readKubernetesDiscovery(v, d, names) }},
		{Name: "services", Elsewhere: "it belongs to xds, dns or kubernetes, beneath `discovery`"},
		{Name: "server", Elsewhere: "it belongs to xds, beneath `discovery`"},
		{Name: "servers", Elsewhere: "it belongs to dns, beneath `discovery`"},
		{Name: "namespaces", Elsewhere: "it belongs to kubernetes, beneath `discovery`"},
	})
	return out
}

func readXDSDiscovery(v strict.Value, d Defaults, names *[]placedName) *XDSDiscovery {
	s := &XDSDiscovery{Node: DiscoveryNode{ID: defaultDiscoveryNode, Cluster: defaultDiscoveryNode}, EmptyHold: DefaultEmptyHold}
	serverAt := v
	v.Object([]strict.Field{
		{Name: "server", Required: true, Read: func(v strict.Value) {
			serverAt = v
			s.Server = readServer(v)
		}},
		boolField("insecure", &s.Insecure),
		{Name: "tls", Read: func(v strict.Value) { s.TLS = readClientTLS(v) }},
		{Name: "node", Read: func(v strict.Value) { readDiscoveryNode(v, &s.Node) }},
		{Name: "service", Read: func(v strict.Value) {
			if which, ok := v.Enum("eds", "ads"); ok {
				s.ADS = which == "ads"
			}
		}},
		{Name: "default_locality", Read: func(v strict.Value) { s.DefaultLocality, _ = readLocality(v) }},
		durationField("empty_hold", 0, MaxEmptyHold, &s.EmptyHold, nil),
		{Name: "services", Required: true, Read: func(v strict.Value) { s.Services = readListed(v, d, names) }},
	})
	s.checkTransport(serverAt)
	return s
}

// checkTransport wants plaintext off the machine to be asked for.
func (s *XDSDiscovery) checkTransport(at strict.Value) {
	switch {
	case s.Server == "": // told already, or missing
	case s.TLS != nil && s.Insecure:
		at.Errorf("remove one of them", "tls and insecure: true exclude each other")
	case s.TLS == nil && !s.Insecure && !onLoopback(s.Server):
		at.Errorf("add tls, or insecure: true if the network is trusted", "%s is another machine, and would be spoken with in plaintext", s.Server)
	}
}

func onLoopback(server string) bool {
	host, _, _ := net.SplitHostPort(server)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// readServer reads HOST:PORT, where the host may be a name.
func readServer(v strict.Value) string {
	const hint = "write it as HOST:PORT, for example 127.0.0.1:18001"
	s, ok := v.Text()
	if !ok {
		return ""
	}
	host, port, err := net.SplitHostPort(s)
	number, portErr := strconv.ParseUint(port, 10, 16)
	_, ipErr := netip.ParseAddr(host)
	if err != nil || portErr != nil || number == 0 || ipErr != nil && !hostName.MatchString(strings.ToLower(host)) {
		v.Errorf(hint, "%q is not a server", s)
		return ""
	}
	return s
}

func readClientTLS(v strict.Value) *ClientTLS {
	t := &ClientTLS{}
	v.Object([]strict.Field{
		fileField("ca", &t.CA), fileField("cert", &t.Cert), fileField("key", &t.Key),
		{Name: "server_name", Read: func(v strict.Value) { t.ServerName, _ = v.Text() }},
	})
	if (t.Cert == "") != (t.Key == "") {
		v.Errorf("give both, or none of them", "cert and key belong together")
	}
	return t
}

func fileField(name string, into *string) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		s, ok := v.Text()
		if ok && !printable(strings.ReplaceAll(s, " ", "_")) {
			v.Errorf("write the path on one line", "%q holds a control character", s)
			return
		}
		if ok {
			*into = filepath.Clean(s)
		}
	}}
}

func readDiscoveryNode(v strict.Value, n *DiscoveryNode) {
	name := func(field string, into *string) strict.Field {
		const longest = 1024
		return strict.Field{Name: field, Read: func(v strict.Value) {
			s, ok := v.Text()
			if ok && (len(s) > longest || !printable(s)) {
				v.Errorf("write at most 1024 bytes without blanks", "%q can't be used as a name", s)
				return
			}
			if ok {
				*into = s
			}
		}}
	}
	v.Object([]strict.Field{
		name("id", &n.ID), name("cluster", &n.Cluster),
		{Name: "locality", Read: func(v strict.Value) { n.Locality, _ = readLocality(v) }},
	})
}

// readListed reads services as those of the file, but that their endpoints
// come from elsewhere.
func readListed(v strict.Value, d Defaults, names *[]placedName) []ListedService {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("add the services to balance, or remove `discovery`", "is empty")
	}
	out := make([]ListedService, 0, len(items))
	lines, edsLines := map[string]int{}, map[string]int{}
	for _, item := range items {
		r := serviceReader{defaults: d, listed: &listedReader{provider: xdsProvider}}
		s := r.service(item)
		if s.Name == "" {
			continue // told already
		}
		if line, twice := lines[s.Name]; twice {
			r.nameAt.Errorf("rename one", "service %s is given twice, first in line %d", s.Name, line)
			continue
		}
		lines[s.Name] = r.nameAt.Pos().Line
		*names = append(*names, placedName{s.Name, r.nameAt})
		eds, at := s.Name, r.nameAt
		if r.listed.at != nil {
			eds, at = r.listed.edsName, *r.listed.at
		}
		if line, twice := edsLines[eds]; twice {
			at.Errorf("keep one of them", "%q is the EDS name of another service, too, in line %d", eds, line)
		}
		edsLines[eds] = at.Pos().Line
		out = append(out, ListedService{EDSName: eds, Service: s, Ceiling: d.Ceiling})
	}
	return out
}

// listedReader is what a serviceReader has on top for a service that a provider
// lists: another control plane, DNS, or a Kubernetes cluster.
type listedReader struct {
	provider provider

	edsName string
	at      *strict.Value

	lookups map[isobar.Locality][]DNSLookup
	seen    map[DNSLookup]int // line of each name
}

// provider is a part of `discovery`.
type provider uint8

const (
	xdsProvider provider = iota
	dnsProvider
	kubernetesProvider
)

// givesLocalities reports whether the provider says which localities there are.
func (l *listedReader) givesLocalities() bool { return l != nil && l.provider != dnsProvider }

func (l *listedReader) field() strict.Field {
	if l == nil || l.provider != xdsProvider {
		return strict.Field{
			Name:      "eds_name",
			Elsewhere: "it belongs to services whose endpoints another control plane lists: put them under `discovery: {xds: {services: ...}}`",
		}
	}
	return strict.Field{Name: "eds_name", Read: func(v strict.Value) {
		const longest = 1024
		s, ok := v.Text()
		if ok && (len(s) > longest || !printable(s)) {
			v.Errorf("write the name exactly as the other control plane has it", "%q is not a resource name", s)
			return
		}
		if ok {
			l.edsName, l.at = s, &v
		}
	}}
}

// endpoints is the field of a locality.
func (l *listedReader) endpoints(read func(strict.Value)) strict.Field {
	if l == nil {
		return strict.Field{Name: "endpoints", Required: true, Read: read}
	}
	if l.provider == dnsProvider {
		return strict.Field{Name: "endpoints", Elsewhere: "DNS lists them, by `lookups`; to list them here, put the service under `services` of the file"}
	}
	if l.provider == kubernetesProvider {
		return strict.Field{Name: "endpoints", Elsewhere: "the Kubernetes cluster lists them; to list them here, put the service under `services` of the file"}
	}
	return strict.Field{Name: "endpoints", Elsewhere: "the other control plane lists them; to list them here, put the service under `services` of the file"}
}

// lookupsField is the field of a locality.
func (l *listedReader) lookupsField(into *[]DNSLookup) strict.Field {
	if l == nil || l.provider != dnsProvider {
		return strict.Field{Name: "lookups", Elsewhere: dnsServiceElsewhere}
	}
	if l.seen == nil {
		l.seen = map[DNSLookup]int{}
	}
	return strict.Field{Name: "lookups", Required: true, Read: func(v strict.Value) { *into = l.readLookups(v, l.seen) }}
}

// checkListed refuses names that the file has among its own services, too, or
// twice under `discovery`.
func checkListed(names []placedName, services []isobar.Service) {
	own := make(map[string]bool, len(services))
	for i := range services {
		own[services[i].Name] = true
	}
	lines := make(map[string]int, len(names))
	for _, n := range names {
		if own[n.name] {
			n.at.Errorf("remove it here or there", "service %s is also in `services` of the file", n.name)
		}
		if line, twice := lines[n.name]; twice {
			n.at.Errorf("remove it here or there", "service %s is also in another part of `discovery`, in line %d", n.name, line)
		}
		lines[n.name] = n.at.Pos().Line
	}
}
