package config

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// Bounds and defaults of names that DNS resolves.
const (
	DefaultMinTTL     = 5 * time.Second
	DefaultDNSTimeout = 2 * time.Second

	maxDNSServers       = 8
	maxLookups          = 10_000 // of all services
	maxLocalityLookups  = 1_000
	defaultDNSPort      = "53"
	minDNSTTL           = time.Second
	maxDNSTTL           = time.Hour
	minDNSTimeout       = 100 * time.Millisecond
	maxDNSTimeout       = 30 * time.Second
	lookupHint          = "write {srv: _grpc._tcp.checkout.example}, or {host: vm-1.example, port: 8080}"
	familyAuto          = "auto"
	familyIPv4          = "ipv4"
	familyIPv6          = "ipv6"
	dnsServiceElsewhere = "it belongs to services whose endpoints DNS lists: put them under `discovery: {dns: {services: ...}}`"
)

// DNSDiscovery says which names have the endpoints of some services.
type DNSDiscovery struct {
	Servers   []string      `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only; IP:port; empty = the system's
	MinTTL    time.Duration // an answer counts at least for so long
	Timeout   time.Duration // of one question to one server
	EmptyHold time.Duration // how long a name that loses its records keeps its endpoints
	Services  []ResolvedService
}

// ResolvedService is a service whose endpoints DNS lists.
type ResolvedService struct {
	Service isobar.Service // its localities have settings, but no endpoints
	Lookups [][]DNSLookup  // of each locality, in the same order
}

// DNSLookup is a name that has endpoints.
type DNSLookup struct {
	Name   string // lower case, without the dot at its end
	SRV    bool   `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only; else it is a host
	Port   uint16 `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only; of a host
	Family string // auto, ipv4 or ipv6
}

// services lists those whose endpoints DNS lists, without endpoints.
func (s *DNSDiscovery) services() []isobar.Service {
	if s == nil {
		return nil
	}
	out := make([]isobar.Service, len(s.Services))
	for i := range s.Services {
		out[i] = s.Services[i].Service
	}
	return out
}

func readDNSDiscovery(v strict.Value, d Defaults, names *[]placedName) *DNSDiscovery {
	s := &DNSDiscovery{MinTTL: DefaultMinTTL, Timeout: DefaultDNSTimeout, EmptyHold: DefaultEmptyHold}
	v.Object([]strict.Field{
		{Name: "servers", Read: func(v strict.Value) { s.Servers = readDNSServers(v) }},
		durationField("min_ttl", minDNSTTL, maxDNSTTL, &s.MinTTL, nil),
		durationField("timeout", minDNSTimeout, maxDNSTimeout, &s.Timeout, nil),
		durationField("empty_hold", 0, MaxEmptyHold, &s.EmptyHold, nil),
		{Name: "services", Required: true, Read: func(v strict.Value) { s.Services = readResolved(v, d, names) }},
	})
	return s
}

// readDNSServers reads addresses; a port may be left out.
func readDNSServers(v strict.Value) []string {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("leave it out for the servers of the system", "is empty")
	}
	if len(items) > maxDNSServers {
		v.Errorf("name at most 8: each is asked only if those before it do not answer", "%d servers", len(items))
		return nil
	}
	var out []string
	for _, item := range items {
		text, ok := item.Text()
		if !ok {
			continue
		}
		if ip, err := netip.ParseAddr(text); err == nil {
			text = net.JoinHostPort(ip.String(), defaultDNSPort)
		}
		address, err := netip.ParseAddrPort(text)
		if err != nil || address.Port() == 0 {
			item.Errorf("write the address of a DNS server, as 10.0.0.2 or 10.0.0.2:5353", "%q is not IP or IP:PORT", text)
			continue
		}
		out = append(out, address.String())
	}
	return out
}

// readResolved reads services as those of the file, but that their localities
// have names instead of endpoints.
func readResolved(v strict.Value, d Defaults, names *[]placedName) []ResolvedService {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("add the services to resolve, or remove `dns`", "is empty")
	}
	out := make([]ResolvedService, 0, len(items))
	lines := map[string]int{}
	all := 0
	for _, item := range items {
		r := serviceReader{defaults: d, listed: &listedReader{provider: dnsProvider, lookups: map[isobar.Locality][]DNSLookup{}}}
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
		one := ResolvedService{Service: s}
		for i := range s.Localities {
			lookups := r.listed.lookups[s.Localities[i].Locality]
			one.Lookups = append(one.Lookups, lookups)
			all += len(lookups)
		}
		out = append(out, one)
	}
	if all > maxLookups {
		v.Errorf("use SRV records, which list many hosts under one name", "%d names, want at most %d", all, maxLookups)
	}
	return out
}

// readLookups reads the names of one locality. seen has the lines of those of
// the service.
func (l *listedReader) readLookups(v strict.Value, seen map[DNSLookup]int) []DNSLookup {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf(lookupHint, "is empty")
	}
	if len(items) > maxLocalityLookups {
		v.Errorf("use SRV records, which list many hosts under one name", "%d names, want at most %d", len(items), maxLocalityLookups)
		return nil
	}
	var out []DNSLookup
	for _, item := range items {
		lookup, ok := readLookup(item)
		if !ok {
			continue
		}
		if line, twice := seen[lookup]; twice {
			item.Errorf("keep one of them", "%s is given twice, first in line %d", lookup.Name, line)
			continue
		}
		seen[lookup] = item.Pos().Line
		out = append(out, lookup)
	}
	return out
}

// readLookup reads HOST:PORT, or an object.
func readLookup(v strict.Value) (l DNSLookup, ok bool) {
	l.Family = familyAuto
	if v.IsText() {
		text, _ := v.Text()
		host, port, err := net.SplitHostPort(text)
		number, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || portErr != nil || number == 0 {
			v.Errorf("add the port, as vm-1.example:8080, or write {srv: checkout.example} if the name has SRV records", "%q is no host with a port", text)
			return l, false
		}
		l.Port = uint16(number)
		l.Name, ok = readDNSName(v, host)
		return l, ok
	}
	var srv, host string
	var srvAt, hostAt, portAt *strict.Value
	good := v.Object([]strict.Field{
		{Name: "srv", Read: func(v strict.Value) { srvAt, srv = &v, text(v) }},
		{Name: "host", Read: func(v strict.Value) { hostAt, host = &v, text(v) }},
		{Name: "port", Read: func(v strict.Value) {
			portAt = &v
			if n, ok := v.Int(strict.Range{Min: 1, Max: 65535, ZeroHint: "write the port of the endpoints"}); ok {
				l.Port = uint16(n) //nolint:gosec // checked by the range
			}
		}},
		{Name: "family", Read: func(v strict.Value) {
			if s, ok := v.Enum(familyAuto, familyIPv4, familyIPv6); ok {
				l.Family = s
			}
		}},
		{Name: "locality", Elsewhere: "it belongs beside `lookups`"},
	})
	switch {
	case !good:
		return l, false
	case (srvAt == nil) == (hostAt == nil):
		v.Errorf(lookupHint, "either srv or host must be given")
		return l, false
	case srvAt != nil && portAt != nil:
		portAt.Errorf("remove it: SRV records have the ports", "port belongs to host")
		return l, false
	case srvAt != nil:
		l.SRV = true
		l.Name, ok = readDNSName(*srvAt, srv)
		return l, ok
	case portAt == nil:
		v.Errorf("add the port of the endpoints, or use SRV records, which have it", "host wants a port")
		return l, false
	default:
		l.Name, ok = readDNSName(*hostAt, host)
		return l, ok && l.Port != 0
	}
}

func text(v strict.Value) string {
	s, _ := v.Text()
	return s
}

// dnsLabels are what a name in DNS may be made of here.
var dnsLabels = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)

// readDNSName brings a name into the spelling that it has everywhere here.
func readDNSName(v strict.Value, s string) (string, bool) {
	name := strings.TrimSuffix(strings.ToLower(s), ".")
	if _, err := netip.ParseAddr(name); err == nil {
		v.Errorf("put the service under `services` of the file, with its addresses as endpoints", "%q is an address, and needs no DNS", s)
		return "", false
	}
	if len(name) > maxDNSName || !dnsLabels.MatchString(name) {
		v.Errorf("write the whole name, for example vm-1.example", "%q is not a DNS name", s)
		return "", false
	}
	return name, true
}
