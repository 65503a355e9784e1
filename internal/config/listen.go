package config

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/isobar-xds/isobar/internal/config/strict"
)

// listener is a listen address while it is read: whether it may leave loopback
// is known only when insecure and tls have been read, too.
type listener struct {
	address  string
	insecure bool
	secure   bool          // TLS is given
	at       *strict.Value // where listen is given
}

func (l *listener) listenField() strict.Field { return l.listenFieldNamed("listen") }

func (l *listener) listenFieldNamed(name string) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if s, ok := v.Text(); ok {
			l.address, l.at = s, &v
		}
	}}
}

// checked returns the address in its canonical form.
func (l *listener) checked() (string, bool) {
	if l.at == nil {
		return l.address, l.insecure
	}
	const hint = "write it as IP:port, for example 127.0.0.1:18000 or [::1]:18000"
	host, port, _ := strings.Cut(l.address, ":")
	_, notPort := strconv.ParseUint(port, 10, 16)
	switch {
	case host == "localhost":
		host = "127.0.0.1"
	case host == "" && notPort == nil: // else it may be IPv6
		l.at.Errorf("write 0.0.0.0:"+port+" and insecure: true for all interfaces, or 127.0.0.1:"+port, "%q names no interface", l.address)
		return l.address, l.insecure
	}
	address := l.address
	if host == "127.0.0.1" {
		address = host + ":" + port
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil || ap.Addr().Zone() != "" {
		l.at.Errorf(hint, "%q is not an address to listen on", l.address)
		return l.address, l.insecure
	}
	if !ap.Addr().Unmap().IsLoopback() && !l.insecure && !l.secure {
		l.at.Errorf("give it tls: {cert: FILE, key: FILE}, listen on 127.0.0.1, or write insecure: true beside it if the network is trusted",
			"the listener %s accepts plaintext from other machines", l.address)
	}
	return ap.String(), l.insecure
}

// listeners is where the addresses of a file stand; nil = not given.
type listeners struct {
	xds   [3]*strict.Value // listen, listen_2017, listen_rest
	admin *strict.Value

	replicas *strict.Value
}

// check finds listeners that would take each other's address. The defaults of
// those that are not given count, too.
func (all *listeners) check(c *Config) {
	type place struct {
		field, address string
		at             *strict.Value
	}
	places := []place{
		{"xds.listen", c.XDS.Listen, all.xds[0]}, {"xds.listen_2017", c.XDS.Listen2017, all.xds[1]},
		{"xds.listen_rest", c.XDS.ListenREST, all.xds[2]}, {"admin.listen", c.Admin.Listen, all.admin},
	}
	if c.Replicas != nil {
		places = append(places, place{"replicas.listen", c.Replicas.Listen, all.replicas})
	}
	for i, later := range places {
		for _, earlier := range places[:i] {
			if !sameAddress(earlier.address, later.address) {
				continue
			}
			at, other := later, earlier
			if at.at == nil {
				at, other = earlier, later
			}
			if at.at != nil {
				at.at.Errorf("give it a port of its own", "%s takes the address of %s, which is %s", at.address, other.field, other.address)
			}
			break // one error is enough
		}
	}
}

// sameAddress reports whether two listeners can't both have what they ask for. Who
// listens on all interfaces takes the port on each, of IPv4 and IPv6: Go opens one
// socket for both.
func sameAddress(a, b string) bool {
	x, errX := netip.ParseAddrPort(a)
	y, errY := netip.ParseAddrPort(b)
	if errX != nil || errY != nil || x.Port() != y.Port() || x.Port() == 0 {
		return false
	}
	p, q := x.Addr().Unmap(), y.Addr().Unmap()
	return p == q || p.IsUnspecified() || q.IsUnspecified()
}
