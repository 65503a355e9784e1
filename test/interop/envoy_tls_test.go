package interop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
)

// shopEnvoy is what the certificates of the Envoys say.
var shopEnvoy = identitytest.Leaf{URIs: []string{"spiffe://prod.example/ns/shop/sa/envoy"}}

// TestEnvoyMTLS: Envoys show certificates with SPIFFE names; both sides change
// theirs, and the authority that both trust, without a failed request; an Envoy
// whose name is not listed gets nothing; and one whose name is taken from the
// list keeps what it had, and is told.
func TestEnvoyMTLS(t *testing.T) {
	t.Parallel()
	first, second := identitytest.NewCA(t), identitytest.NewCA(t)
	server, client := t.TempDir(), t.TempDir()
	files := first.Write(server, identitytest.Leaf{})
	first.Write(client, shopEnvoy)
	b := startWebBackend(t, "b")
	security := fmt.Sprintf(", tls: {cert: %q, key: %q, client_ca: %q}, identities: [{match: %q, roles: [client]}]",
		files.Cert, files.Key, files.ClientCA, "spiffe://prod.example/ns/*/sa/envoy")
	services := fmt.Sprintf("services: [{name: pool, localities: [{locality: us/a, endpoints: [%q]}]}]\n", b.address)
	s := prepareIsobar(t, time.Second, security, services)
	s.run()
	g := secureGateway(t, s, "listed", client)
	g.start(t)
	await(t, "in sync", func() error { return listed(s, g.id) })

	// Its name is that of no identity.
	strange := t.TempDir()
	first.Write(strange, identitytest.Leaf{URIs: []string{"spiffe://prod.example/ns/shop/sa/other"}})
	other := secureGateway(t, s, "strange", strange)
	other.proxy = startEnvoy(t, other.version, other.bootstrap)
	await(t, "refusal of another name", func() error {
		if text := other.log.String(); !strings.Contains(text, "spiffe://prod.example/ns/shop/sa/other") {
			return fmt.Errorf("Envoy says %q", text)
		}
		return nil
	})
	if listed(s, other.id) == nil {
		t.Error("a client with a name that is not listed is served")
	}

	stop := g.steady(t.Context(), "pool", 20)
	both := append(append([]byte{}, first.PEM...), second.PEM...)
	identitytest.Replace(t, filepath.Join(server, "ca.pem"), both)
	identitytest.Replace(t, filepath.Join(client, "ca.pem"), both)
	second.Write(client, shopEnvoy)                                // and trusts the second alone
	identitytest.Replace(t, filepath.Join(client, "ca.pem"), both) // but the server still shows the first
	replaceServer(t, second, server)
	await(t, "new certificate of the server", func() error { return handshake(s.xds, second) })
	s.kill() // the open streams go on by the certificates that they began with
	s.run()
	await(t, "return with the new certificates", func() error { return listed(s, g.id) })
	identitytest.Replace(t, filepath.Join(server, "ca.pem"), second.PEM)
	identitytest.Replace(t, filepath.Join(client, "ca.pem"), second.PEM)

	// Its name is taken from the list: the streams end.
	s.settings = strings.Replace(s.settings, "/ns/*/sa/envoy", "/ns/*/sa/gone", 1)
	s.configure(services)
	await(t, "end of the streams", func() error {
		if listed(s, g.id) == nil {
			return errors.New("still served")
		}
		return nil
	})
	if o := stop(); len(o.Failed) > 0 || len(o.Served) == 0 {
		t.Errorf("requests meanwhile: %+v", o)
	}
	s.settings = strings.Replace(s.settings, "/ns/*/sa/gone", "/ns/*/sa/envoy", 1)
	s.configure(services)
	await(t, "return to the list", func() error { return listed(s, g.id) })
}

// TestEnvoyTLS: Envoys of every protocol get endpoints and report load over TLS, with a
// certificate that the server demands, by the files that `isobar bootstrap envoy`
// takes.
//
//nolint:tparallel // one Envoy at a time: all together need the machine for themselves
func TestEnvoyTLS(t *testing.T) {
	t.Parallel()
	ca := identitytest.NewCA(t)
	dir, own := t.TempDir(), t.TempDir()
	files := ca.Write(dir, identitytest.Leaf{})
	ca.Write(own, shopEnvoy)
	b := startWebBackend(t, "b")
	s := prepareIsobar(t, time.Second, fmt.Sprintf(", tls: {cert: %q, key: %q, client_ca: %q}", files.Cert, files.Key, files.ClientCA),
		fmt.Sprintf("services: [{name: pool, localities: [{locality: us/a, endpoints: [%q]}]}]\n", b.address))
	s.run()
	_, port, err := net.SplitHostPort(s.xds)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range everyProtocol() {
		ok, ran := runs(t, g.name(), func(t *testing.T) {
			t.Helper()
			g.tls = []string{"--ca", filepath.Join(own, "ca.pem"), "--cert", filepath.Join(own, "cert.pem"), "--key", filepath.Join(own, "key.pem")}
			g.begin(t, s, "localhost:"+port, "pool")
			await(t, "answers and load reports", func() error {
				if o := g.requests(t.Context(), "pool", 8); len(o.Failed) > 0 {
					return fmt.Errorf("%+v", o)
				}
				return s.on(t).reported(g.id)
			})
			g.Stop()
		})
		if ran {
			seen.ran(g.name(), overTLS, ok)
		}
	}
}

// reported reports whether some stream of a client brought a load report.
func (s *isobar) reported(id string) error {
	var list admin.ClientList
	if err := s.get("/v1/clients", &list); err != nil {
		return err
	}
	for _, c := range list.Clients {
		if c.ID == id && c.LRS != nil && !c.LRS.LastReport.IsZero() {
			return nil
		}
	}
	return fmt.Errorf("no load report of %s from %d clients", id, len(list.Clients))
}

// listed reports whether a client is connected and in sync.
func listed(s *isobar, id string) error {
	c, err := s.client(id)
	if err == nil && !c.InSync {
		err = fmt.Errorf("%+v", c)
	}
	return err
}

// replaceServer gives the server another certificate. Until both files fit it
// keeps the one before.
func replaceServer(t *testing.T, ca *identitytest.CA, dir string) {
	t.Helper()
	cert, key := ca.Issue(identitytest.Leaf{})
	identitytest.Replace(t, filepath.Join(dir, "cert.pem"), cert)
	identitytest.Replace(t, filepath.Join(dir, "key.pem"), key)
}

// handshake reports whether a server shows a certificate of an authority.
func handshake(address string, ca *identitytest.CA) error {
	c := ca.Client(&shopEnvoy)
	c.ServerName = "localhost"
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address, c)
	if err != nil {
		return err
	}
	return conn.Close()
}

// secureGateway is an Envoy with the files of a directory, which it reads again
// when they change: by SDS, as docs/how-to/secure.md says.
func secureGateway(t *testing.T, s *isobar, id, dir string) *gateway {
	t.Helper()
	_, port, err := net.SplitHostPort(s.xds)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{version: envoy.Newest, protocol: adsStream, zone: "us/a", id: id}
	printed := envoyBootstrap(t, "--server", "localhost:"+port, "--node-id", id, "--locality", g.zone,
		"--ca", filepath.Join(dir, "ca.pem"), "--cert", filepath.Join(dir, "cert.pem"), "--key", filepath.Join(dir, "key.pem"))
	page := string(read(t, "../../docs/how-to/secure.md"))
	blocks := sdsBlocks(t, page)
	for i, name := range []string{"client.yaml", "trust.yaml"} {
		text := strings.ReplaceAll(blocks[i], "/etc/isobar/tls", dir)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := parse(t, withListeners(t, printed, routesTo([]string{"pool"}), ""))
	bySDS(t, c, parse(t, strings.ReplaceAll(blocks[2], "/etc/isobar/tls", dir)))
	g.bootstrap = marshal(t, c)
	g.client.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(g.client.CloseIdleConnections)
	return g
}

// sdsBlocks returns the blocks of YAML on the page about certificates that
// change: the two files, and the fields of common_tls_context.
func sdsBlocks(t *testing.T, page string) []string {
	t.Helper()
	_, section, found := strings.Cut(page, "### Renew certificates of an Envoy\n")
	if !found {
		t.Fatal("no section about the renewal of certificates")
	}
	var out []string
	for len(out) < 3 {
		_, rest, ok := strings.Cut(section, "```yaml\n")
		block, after, ok2 := strings.Cut(rest, "```")
		if !ok || !ok2 {
			t.Fatalf("%d blocks of YAML in the section, want 3", len(out))
		}
		out, section = append(out, block), after
	}
	return out
}

// bySDS replaces the files in the bootstrap's cluster isobar by secrets.
func bySDS(t *testing.T, bootstrap, fields map[string]any) {
	t.Helper()
	resources, _ := bootstrap["static_resources"].(map[string]any)
	clusters, _ := resources["clusters"].([]any)
	for _, c := range clusters {
		cluster, _ := c.(map[string]any)
		socket, _ := cluster["transport_socket"].(map[string]any)
		typed, _ := socket["typed_config"].(map[string]any)
		common, ok := typed["common_tls_context"].(map[string]any)
		if !ok {
			continue
		}
		validation := common["validation_context"].(map[string]any)
		delete(validation, "trusted_ca")
		delete(common, "validation_context")
		delete(common, "tls_certificates")
		combined := fields["combined_validation_context"].(map[string]any)
		combined["default_validation_context"] = validation // the names of the server
		maps.Copy(common, fields)
		return
	}
	t.Fatal("no cluster with TLS in the bootstrap")
}
