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
	"github.com/isobar-xds/isobar/internal/identity"
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
	// as is run instead: with another duration, another number of clients or another folder.
	as string
	// notRun is the reason why it is not run; another test may do what it says.
	notRun string
}

// TestPages runs the commands of each page from a fresh folder, with a server and
// files in the places that the page names. Hosts, ports and directories are those of
// the test; where anything else of a command is changed, pageCommand.as says so.
func TestPages(t *testing.T) {
	t.Parallel()
	pages := maps.Clone(clientPages)
	maps.Copy(pages, operatorPages)
	for _, name := range documented(t) {
		commands := commandsOf(string(read(t, filepath.Join("../..", name))))
		if known := pages[name] != nil || otherPages[name] != ""; known != (len(commands) > 0) {
			t.Errorf("%s has these commands, and TestPages lists the page: %v\n%s", name, known, strings.Join(commands, "\n"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		t.Run(strings.TrimPrefix(name, "docs/"), func(t *testing.T) {
			t.Parallel()
			var listed []string
			for _, c := range pages[name] {
				listed = append(listed, c.line)
			}
			if found := commandsOf(string(read(t, filepath.Join("../..", name)))); !slices.Equal(found, listed) {
				t.Fatalf("the commands of the page are\n%s\nand those of this test\n%s", strings.Join(found, "\n"), strings.Join(listed, "\n"))
			}
			p := preparePage(t, name)
			for _, c := range pages[name] {
				if c.notRun == "" {
					p.run(c)
				}
			}
		})
	}
}

// documented lists the README and the pages of docs.
func documented(t *testing.T) []string {
	t.Helper()
	out := []string{"README.md"}
	for _, pattern := range []string{"*.md", "*/*.md"} {
		names, err := filepath.Glob(filepath.Join("../../docs", pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("no pages: %v", err)
		}
		for _, name := range names {
			out = append(out, strings.TrimPrefix(name, "../../"))
		}
	}
	return out
}

// commandsOf returns the lines of a page that are indented by four spaces or more
// and are no list, and those of blocks of a shell. Lines that are continued, with a
// backslash or within quotes, are joined.
func commandsOf(page string) (out []string) {
	block, fenced, open, begins := "", false, false, false
	for line := range strings.Lines(regexp.MustCompile(` *\\\n *`).ReplaceAllString(page, " ")) {
		text := strings.TrimSpace(line)
		if language, ok := strings.CutPrefix(text, "```"); ok {
			block, fenced = language, !fenced
			continue
		}
		shell := fenced && block == "sh" || !fenced && begins && strings.HasPrefix(line, "    ") && !strings.HasPrefix(text, "- ")
		begins = text == "" || shell // an indented block begins after an empty line
		switch {
		case !shell || text == "":
			continue
		case open:
			out[len(out)-1] += " " + text
		default:
			out = append(out, text)
		}
		open = strings.Contains(out[len(out)-1], " '") && strings.Count(out[len(out)-1], "'")%2 == 1
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

// withClients are the pages that assume a client in us-east/b.
var withClients = []string{
	"docs/how-to/capacity.md", "docs/how-to/drain.md", "docs/how-to/record-and-replay.md", "docs/how-to/what-if.md", "docs/reference/client-status.md",
}

// startThemselves are the pages whose commands start the server.
var startThemselves = []string{"README.md", "docs/how-to/load-test.md"}

// preparePage starts the server that a page assumes, and puts files where the page
// has them: isobar.yaml in the folder is the first block of YAML of the page, or the
// configuration of that server.
func preparePage(t *testing.T, name string) *pageRun {
	t.Helper()
	p := &pageRun{t: t, folder: t.TempDir()}
	files := identitytest.NewCA(t).Write(t.TempDir(), identitytest.Leaf{})
	places := t.TempDir()
	for place, file := range map[string]string{
		"etc/tls/cert.pem": files.Cert, "etc/tls/key.pem": files.Key, "etc/tls/ca.pem": files.ClientCA,
		"etc/isobar/ca.crt": files.ClientCA, "etc/isobar/client.crt": files.Cert, "etc/isobar/client.key": files.Key, "run/secrets/.keep": files.Cert,
		"etc/isobar/replica.pem": files.Cert, "etc/isobar/replica.key": files.Key, "etc/isobar/replicas-ca.pem": files.ClientCA,
	} {
		p.write(filepath.Join(places, place), read(t, file))
	}
	p.write(filepath.Join(p.folder, "ca.pem"), read(t, files.ClientCA))
	xds := ""
	if name == "docs/how-to/checkers.md" {
		xds = fmt.Sprintf(", tls: {cert: %q, key: %q}", files.Cert, files.Key)
	}
	services, first, second := pageServices(t, name)
	p.server = prepareIsobar(t, time.Second, xds, services)
	port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
	p.replace = strings.NewReplacer("isobar.example:18000", "localhost:"+port(p.server.xds), "isobar.example:18080", "localhost:"+port(p.server.api),
		"127.0.0.1:18000", p.server.xds, "127.0.0.1:18080", p.server.api, "127.0.0.1:18001", p.server.rest, "10000", port(testhelp.FreePort(t)),
		"127.0.0.1:50051", first, "10.0.0.1:8080", second, "127.0.0.1:50052", testhelp.FreePort(t), "127.0.0.1:50061", testhelp.FreePort(t),
		"10.0.0.2, 10.0.0.3", testhelp.FreePort(t), // nobody answers
		"/etc/tls", filepath.Join(places, "etc/tls"), "/etc/isobar", filepath.Join(places, "etc/isobar"),
		"/run/secrets", filepath.Join(places, "run/secrets"), "/var/lib/isobar", filepath.Join(places, "var/lib/isobar"))
	p.programs()
	own := p.replace.Replace(firstYAML(string(read(t, filepath.Join("../..", name)))))
	p.settings(name, own, files)
	if !slices.Contains([]string{"README.md", "docs/how-to/dns.md", "docs/how-to/kubernetes.md", "docs/how-to/replicas.md"}, name) {
		own = string(read(t, p.server.config))
	}
	for _, path := range []string{filepath.Join(p.folder, "isobar.yaml"), filepath.Join(p.folder, "changed.yaml"), filepath.Join(places, "etc/isobar/isobar.yaml")} {
		p.write(path, []byte(own))
	}
	if name == "docs/how-to/simulate.md" {
		p.write(filepath.Join(p.folder, "flash.yaml"), read(t, "../../examples/scenarios/flash-crowd.yaml"))
	}
	switch {
	case slices.Contains(startThemselves, name):
	case name == "docs/how-to/secure.md": // whose admin interface takes no plain requests
		p.server.start()
	default:
		p.server.run()
	}
	if slices.Contains(withClients, name) {
		p.startClient("us-east/b")
	}
	if name == "docs/how-to/what-if.md" {
		p.startClient("eu/a")
	}
	return p
}

// pageServices are the services of the server of a page, with real backends. first
// and second are the endpoints that pages call 127.0.0.1:50051 and 10.0.0.1:8080.
func pageServices(t *testing.T, name string) (services, first, second string) {
	t.Helper()
	switch {
	case name == "README.md": // which starts backends
		return "", testhelp.FreePort(t), ""
	case name == "docs/reference/health-discovery.md":
		first = startWebBackend(t, "page").address
		return fmt.Sprintf("services: [{name: checkout, health_checks: [{http: {path: /}}], localities: [{locality: us-east/a, endpoints: [%q]}]}]\n", first), first, ""
	case slices.Contains(withClients, name):
		first, second = startBackend(t, "page", "").address, startBackend(t, "other", "").address
		return fmt.Sprintf("services: [{name: checkout, localities: [{locality: us-east/b, max_rate: 1000, endpoints: [%q, %q]}, {locality: us-east/a, max_rate: 1000, endpoints: [%q]}, {locality: eu/a, max_rate: 1000, endpoints: [%q]}]}]\n",
			first, second, startBackend(t, "a", "").address, startBackend(t, "eu", "").address), first, second
	case name == "docs/how-to/grpc.md":
		first = startBackend(t, "page", "").address
	default:
		first = startWebBackend(t, "page").address
	}
	return fmt.Sprintf("services: [{name: checkout, localities: [{locality: us-east/b, endpoints: [%q]}]}]\n", first), first, ""
}

// settings changes the configuration of the server of a page that needs others. own
// is the YAML of the page.
func (p *pageRun) settings(name, own string, files identity.Files) {
	s, services := p.server, ""
	switch name {
	case "docs/how-to/secure.md":
		token := filepath.Join(p.folder, "token")
		p.write(token, []byte("0123456789abcdef0123456789abcdef\n"))
		s.settings = strings.Replace(s.settings, "writable: true", fmt.Sprintf("writable: true, tls: {cert: %q, key: %q}, token_file: %q", files.Cert, files.Key, token), 1)
	case "docs/how-to/record-and-replay.md":
		s.settings += p.replace.Replace("trace: {directory: /var/lib/isobar/trace, keep: 24h, max_megabytes: 1000}\n")
	case "docs/how-to/dns.md":
		services = own
	case "docs/how-to/replicas.md":
		listen := testhelp.FreePort(p.t)
		s.settings += fmt.Sprintf("replicas: {group: prod, name: isobar-0, listen: %q, peers: [{name: isobar-0, address: %q}], election: {file: %q}}\n", listen, listen, p.t.TempDir())
	default:
		return
	}
	if services == "" {
		services = s.servicesText()
	}
	s.configure(services)
}

// firstYAML is the first block of YAML of a page, at the margin.
func firstYAML(page string) string {
	m := regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```").FindStringSubmatch(page)
	if m == nil {
		return ""
	}
	return regexp.MustCompile("(?m)^"+m[1]).ReplaceAllString(m[2], "")
}

func (p *pageRun) write(path string, data []byte) {
	p.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, data, 0o600)); err != nil {
		p.t.Fatal(err)
	}
}

// startClient starts a client in a locality that makes 20 calls a second, and waits
// until its load is in the plan.
func (p *pageRun) startClient(locality string) {
	t := p.t
	t.Helper()
	id := "web-" + strings.ReplaceAll(locality, "/", "-")
	p.run(pageCommand{
		line:   "isobar bootstrap grpc --server isobar.example:18000 --node-id " + id + " --cluster shop --locality " + locality + " > " + id + ".json",
		prints: id,
	})
	p.start("(while echo 20; do sleep 1; done) | GRPC_XDS_BOOTSTRAP=" + id + ".json exec ./client xds:///checkout 20")
	await(t, "load of the client in "+locality, func() error {
		v, err := p.server.plan("checkout")
		if err != nil {
			return err
		}
		for _, source := range v.Services[0].Sources {
			if source.Source.String() == locality && source.Demand > 10 {
				return nil
			}
		}
		return fmt.Errorf("sources are %+v", v.Services[0].Sources)
	})
}

// programs puts what a page takes for granted into the path: this program, Envoy,
// and a client of gRPC in the folder.
func (p *pageRun) programs() {
	t := p.t
	t.Helper()
	bin := t.TempDir()
	goClient := built(t, "./clients/go")
	client := "#!/bin/sh\n(echo 5; exec sleep 300) | exec " + goClient + " xds:///checkout 100\n"
	envoyProgram := "#!/bin/sh\nexec " + envoyBinary(t, envoy.Newest) + " --use-dynamic-base-id --concurrency 1 \"$@\"\n"
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	grpcurl := goTool(t, "github.com/fullstorydev/grpcurl/cmd/grpcurl", grpcurlVersion)
	if err := errors.Join(os.Symlink(isobarPath, filepath.Join(bin, "isobar")), os.Symlink(grpcurl, filepath.Join(bin, "grpcurl")),
		os.Symlink(filepath.Join(repository, "examples"), filepath.Join(p.folder, "examples")), os.Symlink(goClient, filepath.Join(p.folder, "client")),
		os.WriteFile(filepath.Join(bin, "envoy"), []byte(envoyProgram), 0o700),
		os.WriteFile(filepath.Join(p.folder, "your-client"), []byte(client), 0o700)); err != nil {
		t.Fatal(err)
	}
	p.env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "ISOBAR_ADMIN=http://"+p.server.api, "REPOSITORY="+repository)
}

// run runs a command as a shell does, and waits until it prints what it should: a
// server that has just started, or an Envoy, may need a while.
func (p *pageRun) run(c pageCommand) {
	t := p.t
	t.Helper()
	line := p.replace.Replace(c.line)
	if c.as != "" {
		line = p.replace.Replace(c.as)
	}
	prints := regexp.MustCompile(p.replace.Replace(c.prints))
	if c.starts {
		log := p.start(line)
		await(t, fmt.Sprintf("output %s of %s", c.prints, c.line), func() error {
			if text := log.String(); !prints.MatchString(text) {
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
		if !prints.Match(out) {
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
