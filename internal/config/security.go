package config

import (
	"net/netip"
	"path"
	"strings"
	"unicode"

	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/identity"
)

// pathField reads the path of a file. Whether it is there is known where the
// server runs.
func pathField(name string, into *string) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		s, ok := v.Text()
		switch {
		case !ok:
		case s == "" || strings.ContainsFunc(s, unicode.IsControl):
			v.Errorf("write the path on one line", "%q is not the path of a file", s)
		default:
			*into = s
		}
	}}
}

func required(f strict.Field) strict.Field {
	f.Required = true
	return f
}

// tlsField reads the files of a listener's TLS.
func tlsField(l *listener, into **identity.Files) strict.Field {
	return strict.Field{Name: "tls", Read: func(v strict.Value) {
		l.secure = true // also when it is wrong: one error is enough
		f := &identity.Files{}
		v.Object([]strict.Field{
			required(pathField("cert", &f.Cert)), required(pathField("key", &f.Key)), pathField("client_ca", &f.ClientCA),
		})
		*into = f
		if l.insecure {
			v.Warnf("leave insecure out", "insecure: true has no effect beside tls")
		}
	}}
}

// maxIdentities bounds the rules: each stream is held against all of them.
const maxIdentities = 1000

func readIdentities(v strict.Value, tls *identity.Files) identity.Policy {
	if tls == nil || tls.ClientCA == "" {
		v.Errorf("add tls: {cert: FILE, key: FILE, client_ca: FILE} to xds",
			"identities come from the certificates of clients, which only tls with client_ca asks for")
	}
	items, ok := v.List()
	switch {
	case !ok:
		return nil
	case len(items) == 0:
		v.Errorf("list the identities with their roles, or leave identities out", "an empty list of identities")
	case len(items) > maxIdentities:
		v.Errorf("let patterns stand for more clients each", "%d identities, want at most %d", len(items), maxIdentities)
		return nil
	}
	out := make(identity.Policy, 0, len(items))
	for _, item := range items {
		out = append(out, readIdentity(item))
	}
	return out
}

func readIdentity(v strict.Value) identity.Rule {
	var r identity.Rule
	v.Object([]strict.Field{
		{Name: "match", Required: true, Read: func(v strict.Value) {
			s, ok := v.Text()
			if !ok {
				return
			}
			p, err := identity.ParsePattern(s)
			if err != nil {
				v.Errorf("write a SPIFFE ID such as spiffe://prod.example/ns/*/sa/envoy or a DNS name such as *.clients.example", "%v", err)
			}
			r.Match = p
		}},
		{Name: "roles", Required: true, Read: func(v strict.Value) {
			items, ok := v.List()
			if ok && len(items) == 0 {
				v.Errorf("list one of client, checker and admin, or more", "no role")
			}
			for _, item := range items {
				if s, ok := item.Enum(identity.RoleNames()...); ok {
					role, _ := identity.ParseRole(s) // it is one of the names
					r.Roles |= role
				}
			}
		}},
		{Name: "localities", Read: func(v strict.Value) {
			items, ok := v.List()
			if ok && len(items) == 0 {
				v.Errorf("leave localities out to allow all of them", "no locality")
			}
			for _, item := range items {
				s, ok := item.Text()
				if !ok {
					continue
				}
				l, err := identity.ParseLocality(s)
				if err != nil || !printable(s) {
					item.Errorf("write region, region/zone or region/zone/sub_zone; * stands for any one of them", "%q is not a pattern of localities", s)
					continue
				}
				r.Localities = append(r.Localities, l)
			}
		}},
	})
	return r
}

// reportsField reads on what clients may report.
func reportsField(subscribedOnly *bool) strict.Field {
	return strict.Field{Name: "reports", Read: func(v strict.Value) {
		if s, ok := v.Enum("subscribed", "any"); ok {
			*subscribedOnly = s == "subscribed"
		}
	}}
}

func tokenForField(a *Admin) strict.Field {
	return strict.Field{Name: "token_for", Read: func(v strict.Value) {
		if s, ok := v.Enum("writes", "all"); ok {
			a.TokenForAll = s == "all"
		}
		if a.TokenFile == "" {
			v.Errorf("add token_file: FILE", "token_for has no effect without a token_file")
		}
	}}
}

const unreserved = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~" // in addresses

// basePathField reads a path such as /isobar, whose segments need no escaping.
func basePathField(into *string) strict.Field {
	return strict.Field{Name: "base_path", Read: func(v strict.Value) {
		s, ok := v.Text()
		if !ok {
			return
		}
		if s != path.Clean(s) || !strings.HasPrefix(s, "/") || s == "/" || strings.Trim(s, "/"+unreserved) != "" {
			v.Errorf("write a path such as /isobar, of letters, digits and -._~, without a slash at its end", "%q is not a base path", s)
			return
		}
		*into = s
	}}
}

func readAdmission(v strict.Value, a *Admission) {
	count := func(name string, into *int) strict.Field {
		return strict.Field{Name: name, Read: func(v strict.Value) {
			if n, ok := v.Int(strict.Range{Min: 1, Max: 1e7, ZeroHint: "leave it out for the default"}); ok {
				*into = int(n)
			}
		}}
	}
	v.Object([]strict.Field{
		floatField("streams_per_second", &a.StreamsPerSecond,
			strict.Range{Min: 1, Max: 1e7, Unit: "streams/s", ZeroHint: "leave it out for the default"}),
		count("burst", &a.Burst), count("max_connections", &a.MaxConnections),
		count("peer_streams", &a.PeerStreams), count("peer_localities", &a.PeerLocalities),
		count("name_megabytes", &a.NameMegabytes), count("report_megabytes", &a.ReportMegabytes),
	})
}

// maxBalancers bounds the list that each new connection is held against.
const maxBalancers = 100

// readProxyProtocol reads which balancers tell the addresses of their clients.
func readProxyProtocol(v strict.Value) []netip.Prefix {
	var out []netip.Prefix
	v.Object([]strict.Field{{Name: "from", Required: true, Read: func(v strict.Value) {
		items, ok := v.List()
		switch {
		case !ok:
			return
		case len(items) == 0:
			v.Errorf("list the addresses of the balancers, or leave proxy_protocol out", "an empty list of balancers")
		case len(items) > maxBalancers:
			v.Errorf("write the networks of the balancers, such as 10.0.0.0/24", "%d balancers are more than %d", len(items), maxBalancers)
			return
		}
		for _, item := range items {
			if p, ok := readPrefix(item); ok {
				out = append(out, p)
			}
		}
	}}})
	return out
}

// readPrefix reads an address or a network.
func readPrefix(v strict.Value) (p netip.Prefix, ok bool) {
	s, ok := v.Text()
	if !ok {
		return p, false
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || p.Addr().Is4In6():
		v.Errorf("write an IP address, or a network such as 10.0.0.0/24", "%q is no IP address or network", s)
		return p, false
	case p.Bits() == 0:
		v.Errorf("list only the load balancers: a listed host can claim any client address", "%s is every address", s)
		return p, false
	}
	return p.Masked(), true
}

// AsksCertificates reports whether clients have to show certificates.
func (x *XDS) AsksCertificates() bool { return x.TLS != nil && x.TLS.ClientCA != "" }
