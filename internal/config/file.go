package config

import (
	"log/slog"
	"net/netip"
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
	root.Object([]strict.Field{
		{Name: "xds", Read: func(v strict.Value) { readXDS(v, &c.XDS) }},
		{Name: "admin", Read: func(v strict.Value) { readAdmin(v, c) }},
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
		{Name: "log", Read: func(v strict.Value) { readLog(v, &c.Log) }},
		{Name: "defaults", Read: func(v strict.Value) { readDefaults(v, &c.Defaults) }},
		{Name: "network", Read: func(v strict.Value) { c.Network = readNetwork(v, &named) }},
		{Name: "services", Read: func(v strict.Value) { c.Services = readServices(v, c.Defaults) }},
		{Name: "source", Read: func(v strict.Value) { c.Source = readSource(v, c.Defaults, &listed) }},
	})
	checkListed(listed, c.Services)
	if c.Source == nil { // else nobody knows where services run
		checkRegions(named, c.Services)
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

func readXDS(v strict.Value, x *XDS) {
	l := listener{address: x.Listen}
	var old, rest listener
	v.Object([]strict.Field{
		l.listenField(), boolField("insecure", &l.insecure),
		{Name: "max_streams", Read: func(v strict.Value) {
			if n, ok := v.Int(strict.Range{Min: 1, Max: 1e6, ZeroHint: "leave it out for 20000"}); ok {
				x.MaxStreams = int(n)
			}
		}},
		boolField("endpoint_load", &x.EndpointLoad),
		tlsField(&l, &x.TLS),
		{Name: "identities", Read: func(v strict.Value) {
			x.Identities = readIdentities(v, x.TLS)
			x.SubscribedOnly = true // unless reports says else
		}},
		reportsField(x),
		{Name: "admission", Read: func(v strict.Value) { readAdmission(v, &x.Admission) }},
		old.listenFieldNamed("listen_2017"), rest.listenFieldNamed("listen_rest"),
		{Name: "clients_2017", Read: func(v strict.Value) { x.Clients2017 = readPatterns(v) }},
	})
	x.Listen, x.Insecure = l.checked()
	old.insecure, rest.insecure = l.insecure, l.insecure
	old.secure, rest.secure = l.secure, l.secure
	x.Listen2017, _ = old.checked()
	x.ListenREST, _ = rest.checked()
}

func readAdmin(v strict.Value, c *Config) {
	a := &c.Admin
	l := listener{address: a.Listen}
	v.Object([]strict.Field{
		l.listenField(), boolField("insecure", &l.insecure), boolField("writable", &a.Writable),
		{Name: "hosts", Read: func(v strict.Value) { a.Hosts = readHosts(v) }},
		tlsField(&l, &a.TLS),
		pathField("token_file", &a.TokenFile),
		tokenForField(a),
	})
	a.Listen, a.Insecure = l.checked()
	if a.Listen == c.XDS.Listen && !strings.HasSuffix(a.Listen, ":0") {
		l.place(v).Errorf("give it a port of its own", "%s is the address of xds, too", a.Listen)
	}
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

func (l *listener) place(object strict.Value) strict.Value {
	if l.at != nil {
		return *l.at
	}
	return object
}

// checked gives the address in its canonical form.
func (l *listener) checked() (string, bool) {
	if l.at == nil {
		return l.address, l.insecure
	}
	const form = "write it as IP:port, for example 127.0.0.1:18000"
	host, port, _ := strings.Cut(l.address, ":")
	switch host {
	case "localhost":
		host = "127.0.0.1"
	case "":
		l.at.Errorf("write 0.0.0.0:"+port+" and insecure: true for all interfaces, or 127.0.0.1:"+port, "%q names no interface", l.address)
		return l.address, l.insecure
	}
	address := l.address
	if host == "127.0.0.1" {
		address = host + ":" + port
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil || ap.Addr().Zone() != "" {
		l.at.Errorf(form, "%q is not an address to listen on", l.address)
		return l.address, l.insecure
	}
	if !ap.Addr().Unmap().IsLoopback() && !l.insecure && !l.secure {
		l.at.Errorf("give it tls: {cert: FILE, key: FILE}, listen on 127.0.0.1, or write insecure: true beside it if the network is trusted",
			"%s can be reached from other machines, in plaintext", l.address)
	}
	return ap.String(), l.insecure
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
	v.Object([]strict.Field{
		modeField(&d.Mode), policyField(&d.Policy),
		isolationField(&d.Isolation), residencyField(&d.Residency),
		floatField("failover_threshold", &d.FailoverThreshold, failoverRange),
		floatField("max_shift", &d.MaxShift, shiftRange),
		floatField("max_shed", &d.MaxShed, shedRange),
		floatField("ceiling", &d.Ceiling, ceilingRange),
		floatField("service_time_ms", &d.ServiceTimeMS, serviceTimeRange),
	})
}
