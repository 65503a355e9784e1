package interop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// pageCommand is a line of a block of commands on a page, as it stands there, with
// continued lines joined.
type pageCommand struct {
	line   string
	prints string // regular expression for what it prints, or for the file that it writes
	// starts leaves it running, once it has printed that, while the next commands run.
	starts bool
	// notRun is the reason why it is not run; another test may do what it says.
	notRun string
}

// The commands of the pages on clients. Each page is played in a folder of its own.
var pageCommands = map[string][]pageCommand{
	"grpc.md": {
		{line: "isobar bootstrap grpc --server isobar.example:18000 --cluster shop --locality us-east/b > bootstrap.json", prints: `"server_uri": "localhost:`},
		{line: "GRPC_XDS_BOOTSTRAP=bootstrap.json ./your-client     # dials xds:///checkout", prints: `"served":\{"page":5\}`, starts: true},
		{line: "isobar clients", prints: `1 of 1 clients in sync, on \d streams`},
		{line: "isobar bootstrap grpc --server isobar.example:18000 --cluster checkout --locality us-east/b --server-listeners > bootstrap.json", prints: "server_listener_resource_name_template"},
		{line: "isobar bootstrap grpc --server isobar.example:18000 --cluster checkout --locality us-east/b --listener-cert /etc/tls/cert.pem --listener-key /etc/tls/key.pem --listener-client-ca /etc/tls/ca.pem > bootstrap.json", prints: "file_watcher"},
		{line: "keytool -importcert -noprompt -alias isobar -file ca.pem -keystore trust.p12 -storetype PKCS12 -storepass changeit", prints: "added"},
		{line: "isobar bootstrap grpc --language java --server isobar.example:18000 --cluster shop --locality us-east/b --ca ca.pem > bootstrap.json", prints: `"type": "tls"`},
		{line: "java -Djavax.net.ssl.trustStore=trust.p12 -Djavax.net.ssl.trustStorePassword=changeit ...", notRun: "TestClientsTLS runs a client with these properties"},
		{line: "XdsCredentialsRegistry.getDefaultRegistry().register(new TLSFilesProvider());", notRun: "Java; TestClientsTLS has the provider of the example"},
	},
	"envoy.md": {
		{line: "isobar bootstrap envoy --server isobar.example:18000 --cluster shop --locality us-east/b --listener 10000 > envoy.yaml", prints: "static_resources:"},
		{line: "envoy -c envoy.yaml", starts: true},
		{line: "curl --header 'Host: checkout' http://127.0.0.1:10000/", prints: "page$"},
		{line: "isobar bootstrap envoy --server isobar.example:18000 --cluster shop --locality us-east/b > envoy.yaml", prints: "cds_config"},
		{line: "isobar bootstrap envoy --server isobar.example:18000 --locality us-east/b --service checkout > envoy.yaml", prints: "checkout"},
	},
	"beside-contour.md": {
		{line: `envoy -c /config/envoy.json --service-node "$POD_NAME" --config-yaml "$(isobar bootstrap envoy --beside --server isobar.example:18000 --cluster shop --locality us-east/b)"`, notRun: "TestBesideContour runs it, with Contour"},
	},
	"beside-envoy-control-plane.md": {
		{line: "isobar bootstrap envoy --beside --server isobar.example:18000 --cluster shop --locality us-east/b", prints: "(?s)static_resources:.*name: isobar"},
	},
	"beside-istio.md": {
		{line: "isobar bootstrap envoy --beside --server isobar.example:18000 --cluster shop --locality us-east/b", prints: "(?s)static_resources:.*name: isobar"},
	},
	"beside-grpc-control-plane.md": {
		{line: "isobar bootstrap grpc --beside --server isobar.example:18000 --cluster shop --locality us-east/b", prints: `"authorities"`},
		{line: "xdstp://isobar/envoy.config.cluster.v3.Cluster/checkout", notRun: "a name, no command; TestBesideGoControlPlane uses it"},
	},
	"old-clients.md": {
		{line: "xds:", notRun: "a piece of configuration"},
		{line: "listen: 127.0.0.1:18000", notRun: "a piece of configuration"},
		{line: "listen_2017: 127.0.0.1:18017       # or", notRun: "a piece of configuration"},
		{line: `clients_2017: ["legacy-*"]`, notRun: "a piece of configuration"},
		{line: `curl -s 127.0.0.1:18001/v3/discovery:endpoints -d '{"node": {"id": "a", "locality": {"region": "us-east", "zone": "b"}}, "resource_names": ["checkout"]}'`, prints: `"port_value":`},
	},
	"secure.md": {
		{line: "isobar_tls_certificate_expiry_seconds - time() < 7 * 86400", notRun: "a query of Prometheus; promtool reads those of the documents in internal/archtest"},
		{line: "isobar bootstrap grpc --server isobar.example:18000 --cluster shop --locality us-east/b --ca /etc/isobar/ca.crt --cert /etc/isobar/client.crt --key /etc/isobar/client.key > bootstrap.json", prints: `"certificate_file"`},
		{line: "openssl rand -hex 32 > /run/secrets/isobar-token", prints: "^[0-9a-f]{64}\n$"},
		{line: "isobar clients --admin https://isobar.example:18080 --ca ca.pem --token-file token", prints: "0 of 0 clients in sync"},
	},
}

// TestPages runs the commands of each page from a fresh folder, with a server and
// files in the places that the page names. Hosts, ports and directories are those of
// the test; nothing else of a command is changed.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(pageCommands)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commands := pageCommands[name]
			var listed []string
			for _, c := range commands {
				listed = append(listed, c.line)
			}
			if found := commandsOf(string(read(t, filepath.Join("../../docs/how-to", name)))); !slices.Equal(found, listed) {
				t.Fatalf("the commands of the page are\n%s\nand those of this test\n%s", strings.Join(found, "\n"), strings.Join(listed, "\n"))
			}
			p := preparePage(t, name)
			for _, c := range commands {
				if c.notRun == "" {
					p.run(c)
				}
			}
		})
	}
}

// commandsOf returns the lines of a page that are indented by four spaces or more
// and are no list.
func commandsOf(page string) (out []string) {
	fenced := false
	for line := range strings.Lines(regexp.MustCompile(` *\\\n *`).ReplaceAllString(page, " ")) {
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, "```") {
			fenced = !fenced
			continue
		}
		if !fenced && strings.HasPrefix(line, "    ") && text != "" && !strings.HasPrefix(text, "- ") {
			out = append(out, text)
		}
	}
	return out
}

// pageRun is a folder in which the commands of a page run.
type pageRun struct {
	t       *testing.T
	server  *isobar
	folder  string
	replace *strings.Replacer
	env     []string
}

// preparePage starts the server that a page assumes.
func preparePage(t *testing.T, name string) *pageRun {
	t.Helper()
	p := &pageRun{t: t, folder: t.TempDir()}
	files := identitytest.NewCA(t).Write(t.TempDir(), identitytest.Leaf{})
	places := t.TempDir()
	for place, file := range map[string]string{
		"etc/tls/cert.pem": files.Cert, "etc/tls/key.pem": files.Key, "etc/tls/ca.pem": files.ClientCA,
		"etc/isobar/ca.crt": files.ClientCA, "etc/isobar/client.crt": files.Cert, "etc/isobar/client.key": files.Key, "run/secrets/.keep": files.Cert,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Join(places, filepath.Dir(place)), 0o750), os.WriteFile(filepath.Join(places, place), read(t, file), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	address := startWebBackend(t, "page").address
	if name == "grpc.md" {
		address = startBackend(t, "page", "").address
	}
	p.server = prepareIsobar(t, time.Second, "", fmt.Sprintf("services: [{name: checkout, localities: [{locality: us-east/b, endpoints: [%q]}]}]\n", address))
	if name == "secure.md" {
		token := filepath.Join(p.folder, "token")
		if err := os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.server.settings = strings.Replace(p.server.settings, "writable: true", fmt.Sprintf("writable: true, tls: {cert: %q, key: %q}, token_file: %q", files.Cert, files.Key, token), 1)
		p.server.configure(p.server.servicesText())
		p.server.start()
	} else {
		p.server.run()
	}
	p.programs()
	if err := os.WriteFile(filepath.Join(p.folder, "ca.pem"), read(t, files.ClientCA), 0o600); err != nil {
		t.Fatal(err)
	}
	port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
	p.replace = strings.NewReplacer("isobar.example:18000", "localhost:"+port(p.server.xds), "isobar.example:18080", "localhost:"+port(p.server.api),
		"127.0.0.1:18001", p.server.rest, "10000", port(testhelp.FreePort(t)),
		"/etc/tls", filepath.Join(places, "etc/tls"), "/etc/isobar", filepath.Join(places, "etc/isobar"), "/run/secrets", filepath.Join(places, "run/secrets"))
	return p
}

// programs puts what a page takes for granted into the path: this program, Envoy,
// and a client of gRPC in the folder.
func (p *pageRun) programs() {
	t := p.t
	t.Helper()
	bin := t.TempDir()
	client := "#!/bin/sh\n(echo 5; exec sleep 300) | exec " + built(t, "./clients/go") + " xds:///checkout 100\n"
	envoyProgram := "#!/bin/sh\nexec " + envoyBinary(t, envoy.Newest) + " --use-dynamic-base-id --concurrency 1 \"$@\"\n"
	if err := errors.Join(os.Symlink(isobarPath, filepath.Join(bin, "isobar")),
		os.WriteFile(filepath.Join(bin, "envoy"), []byte(envoyProgram), 0o700),
		os.WriteFile(filepath.Join(p.folder, "your-client"), []byte(client), 0o700)); err != nil {
		t.Fatal(err)
	}
	p.env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "ISOBAR_ADMIN=http://"+p.server.api)
}

// run runs a command as a shell does, and waits until it prints what it should: a
// server that has just started, or an Envoy, may need a while.
func (p *pageRun) run(c pageCommand) {
	t := p.t
	t.Helper()
	line := p.replace.Replace(c.line)
	if c.starts {
		log := p.start(line)
		await(t, fmt.Sprintf("output %s of %s", c.prints, c.line), func() error {
			if text := log.String(); !regexp.MustCompile(c.prints).MatchString(text) {
				return fmt.Errorf("it prints %.2000s", text)
			}
			return nil
		})
		return
	}
	await(t, fmt.Sprintf("output %s of %s", c.prints, c.line), func() error {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir, cmd.Env = p.folder, p.env
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if _, file, ok := strings.Cut(line, " > "); ok {
			if !filepath.IsAbs(file) {
				file = filepath.Join(p.folder, file)
			}
			out = append(out, read(t, file)...)
		}
		if !regexp.MustCompile(c.prints).Match(out) {
			return fmt.Errorf("it prints %.2000s", out)
		}
		return nil
	})
}

// start runs a command until the test ends, and returns what it prints.
func (p *pageRun) start(line string) *testhelp.Log {
	t := p.t
	t.Helper()
	log := new(testhelp.Log)
	cmd := exec.CommandContext(context.Background(), "sh", "-c", line)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the shell ends with what it started
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.folder, p.env, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended on its own, which the test has seen
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %.4000s", line, log)
		}
	})
	return log
}
