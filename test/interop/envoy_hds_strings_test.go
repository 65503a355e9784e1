package interop

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// hostileValues are values of request headers that the configuration takes.
// Envoy reads the values of a check's headers as format strings, and ends its
// process where it can't.
func hostileValues() []string {
	out := []string{
		"100%", "%", "%%", "%%%", "%FOO%", "%FOO", "FOO%", "%REQ(", "%REQ(X)%", "%REQ(:authority)%:5", "% %", "%%FOO%%",
		"%START_TIME(%s%Y)%", "%FILTER_STATE(x:PLAIN)%", "%DYNAMIC_METADATA(a:b)%",
		"%UPSTREAM_METADATA(a:b)%", "%DOWNSTREAM_REMOTE_ADDRESS%", "%HOSTNAME%", "%ENVIRONMENT(HOME)%", "%s%n%x%p", "%d", "%1$s",
		"%00", "%0d%0aX: y", "%\t%", "%ü%", "\u00fc\u4e16", "{}", "{{.X}}", "{{upstream}}", "${HOME}", "$(id)", "`id`", "';--", "<&>", `\`, `\n`, `"`,
		"(.*)+$", "[", "(?=", "a,b;c=d", strings.Repeat("%", 999), strings.Repeat("x", 4096),
	}
	return append(out, "a\tb")
}

// hostilePaths are paths that the configuration takes.
func hostilePaths() []string {
	return []string{
		"/", "//", "/%25", "/a%20b", "/%FOO%25", "/a?b=c&d=%25", "/../..", "/a/../b", "/.", "/{}", "/(.*)+", "/a;b,c|d", "/\"'`<>", "/\\",
		"/%00", "/%ff%fe", "/?", "/" + strings.Repeat("a", 4000), "/" + strings.Repeat("%41", 1000),
	}
}

// hostileHosts are hosts and server names that the configuration takes.
func hostileHosts() []string {
	return []string{
		"a", "a:0", "a:99999", "%", "100%", "%FOO%", "a_b", "a..b", ".a", "a.", "-", "*", "*.a", "[::1]:80", "[::1", "::", "1.2.3.4", "a,b", "a;b",
		"{a}", "(a|b)+", "$a", "a&b=c", "'", "~!", "^", "xn--a", strings.Repeat("a", 63) + ".b", strings.Repeat("a", 253), strings.Repeat("a.", 126) + "a",
	}
}

// startEcho is a TCP backend that sends back what it gets.
func startEcho(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return lis.Addr().String()
}

// hostile is a service with a hostile string in its check.
type hostile struct {
	checked

	what string       // the string
	seen func() error // reports what is missing at the endpoint; nil where the probes fail
}

// hostileFleet makes services with hostile strings in every place of a check.
type hostileFleet struct {
	web  *probedWeb
	echo string
	all  []hostile
}

func (f *hostileFleet) add(what, kind string, details map[string]any, seen func() error) *hostile {
	check := map[string]any{"interval": "1s", kind: details}
	address := f.web.address
	if kind == "tcp" {
		address = f.echo
	}
	f.all = append(f.all, hostile{what: what, seen: seen, checked: checked{
		Name: fmt.Sprintf("s%d", len(f.all)), Checkers: byOne, Checks: []map[string]any{check},
		Localities: []checkedLocality{{Locality: "us/a", Endpoints: []checkedEndpoint{{Address: address}}}},
	}})
	return &f.all[len(f.all)-1]
}

// path is where the next service is probed.
func (f *hostileFleet) path() string { return fmt.Sprintf("/of/%d", len(f.all)) }

func (f *hostileFleet) header(name, value string) {
	path := f.path()
	f.add(name+": "+value, "http", map[string]any{"path": path, "headers": []map[string]string{{"name": name, "value": value}}},
		func() error { return f.web.got(path, name, value) })
}

func (f *hostileFleet) host(host string) {
	path := f.path()
	f.add(host, "http", map[string]any{"path": path, "host": host}, func() error { return f.web.got(path, "Host", host) })
	own := f.path()
	e := f.add(host, "http", map[string]any{"path": own}, func() error { return f.web.got(own, "Host", host) })
	e.Localities[0].Endpoints[0].Check = map[string]any{"hostname": host}
	f.add(host, "http", map[string]any{"path": f.path(), "host": host}, nil).Checks[0]["tls"] = true // as server name
}

// hostileServices has every hostile string in every place of a check.
func hostileServices(web *probedWeb, echo string) []hostile {
	f := &hostileFleet{web: web, echo: echo}
	for _, value := range hostileValues() {
		f.header("X-Probe", value)
	}
	for _, name := range []string{"%", "%FOO%", "x%", "!#$%&'*+-.^_`|~", "a", strings.Repeat("n", 253)} {
		f.header(name, "1")
	}
	for _, path := range hostilePaths() {
		f.add(path, "http", map[string]any{"path": path}, func() error { return web.got(path, "", "") })
	}
	for _, host := range hostileHosts() {
		f.host(host)
	}
	for _, payload := range slices.Concat(hostileValues()[:20], []string{"\r\n", "\x00", strings.Repeat("x", 2000)}) {
		text := "hex:" + hex.EncodeToString([]byte(payload))
		f.add(payload, "tcp", map[string]any{"send": text, "receive": text}, func() error { return nil })
	}
	for _, locality := range []string{"100%", "%FOO%/%", "{}/(.*)+/$x", strings.Repeat("z", 253)} {
		path := f.path()
		f.add(locality, "http", map[string]any{"path": path}, func() error { return web.got(path, "", "") }).Localities[0].Locality = locality
	}
	return f.all
}

// No string that the configuration takes ends an Envoy or changes what it sends,
// neither at first nor after a restart nor when the service goes.
func TestEnvoyTakesHostileStrings(t *testing.T) {
	t.Parallel()
	for _, version := range envoyVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			all := hostileServices(startProbedWeb(t), startEcho(t))
			services := make([]checked, 0, len(all))
			for _, h := range all {
				services = append(services, h.checked)
			}
			s := startIsobar(t, servicesText(t, services...))
			p := startChecker(t, version, "checker", "us/a", s)
			p.votes(t, s, all)
			p.Kill()
			p = startChecker(t, version, "checker", "us/a", s)
			p.votes(t, s, all)
			// A third goes at a time: more than that has to be confirmed. At first
			// the Envoy is away, so that it is given what is gone at its return.
			for i, away := range []bool{true, true, true, false, false, false} {
				from, to := i%3*(len(all)/3), (i%3+1)*(len(all)/3)
				if away {
					p.Kill()
				}
				s.configure(servicesText(t, slices.Concat(services[:from], services[to:])...))
				if away {
					p = startChecker(t, version, "checker", "us/a", s)
				}
				await(t, "end of what is gone", func() error {
					p.alive(t)
					return s.designated("checker", len(all)-(to-from))
				})
				p.votes(t, s, all[:from])
				p.votes(t, s, all[to:])
				s.configure(servicesText(t, services...))
				await(t, "return of what was gone", func() error { return s.designated("checker", len(all)) })
			}
			p.votes(t, s, all)
		})
	}
}

// votes waits until an Envoy votes on all endpoints, as healthy where that can be.
func (p *proxy) votes(t *testing.T, s *isobar, all []hostile) {
	t.Helper()
	since := time.Now()
	for _, h := range all {
		await(t, fmt.Sprintf("vote on %s with %.100q", h.Name, h.what), func() error {
			p.alive(t)
			list, err := s.verdicts(h.Name)
			if err != nil {
				return err
			}
			v := list[h.Localities[0].Endpoints[0].Address]
			if len(v.Votes) == 0 || v.Votes[0].Heard.Before(since) {
				return fmt.Errorf("no vote: %+v", v)
			}
			if h.seen == nil {
				return nil
			}
			if v.Status.String() != "healthy" {
				return fmt.Errorf("%s", v.Why)
			}
			return h.seen()
		})
	}
}
