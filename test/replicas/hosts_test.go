package replicas

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/isobar-xds/isobar/internal/admin"
)

const example = "../../examples/three-hosts"

// host is one of the three hosts of the example, as an address of this machine.
type host struct {
	name, address string
	admin         string
}

// TestThreeHosts starts the group of examples/three-hosts with its certificates, its
// configuration and the flags of its unit of etcd, each host on an address of its own;
// loses one host after another, and gets each back.
func TestThreeHosts(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "isobar")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/isobar")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building isobar: %v; %s", err, out)
	}
	var hosts []*host
	args := []string{filepath.Join(dir, "certificates")}
	for i := range 3 {
		h := &host{name: fmt.Sprintf("isobar-%d", i), address: fmt.Sprintf("127.0.%d.%d", 100+os.Getpid()%100, i+1)}
		hosts = append(hosts, h)
		args = append(args, h.name+"="+h.address+",127.0.0.1") // which the kernel takes as the source of connections
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(example, "certificates.sh"), args...).CombinedOutput(); err != nil {
		t.Fatalf("certificates.sh: %v; %s", err, out)
	}
	processes := map[*host][]*exec.Cmd{}
	start := func(h *host) {
		t.Helper()
		for _, command := range [][]string{h.etcd(t, dir, hosts), h.isobar(t, dir, program, hosts)} {
			c := exec.Command(command[0], command[1:]...)
			var log bytes.Buffer
			c.Stdout, c.Stderr = &log, &log
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%s on %s says: %s", filepath.Base(command[0]), h.name, log.String())
				}
			})
			processes[h] = append(processes[h], c)
		}
	}
	kill := func(h *host) {
		for _, c := range processes[h] {
			_ = c.Process.Kill()
			_ = c.Wait() // it was killed
		}
		processes[h] = nil
	}
	for _, h := range hosts {
		start(h)
		t.Cleanup(func() { kill(h) })
	}
	await := func(what string, live int, asked *host) admin.ReplicaGroup {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			g, text := asked.status(ctx, program)
			if g.Leader != "" && g.Live() == live && g.Engine && g.Removes {
				return g
			}
			select {
			case <-ctx.Done():
				t.Fatalf("%s: not within a minute; isobar replicas status says %s", what, text)
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	await("the group", 3, hosts[0])
	for i, lost := range hosts {
		asked := hosts[(i+1)%3]
		kill(lost)
		g := await("a group of two without "+lost.name, 2, asked)
		if g.Leader == lost.name {
			t.Errorf("%s is lost, and leads", lost.name)
		}
		start(lost)
		await("the group with "+lost.name, 3, asked)
	}
}

// status runs isobar replicas status.
func (h *host) status(ctx context.Context, program string) (g admin.ReplicaGroup, text string) {
	out, err := exec.CommandContext(ctx, program, "replicas", "status", "-o", "json", "--admin", h.admin).Output()
	if json.Unmarshal(out, &g) != nil {
		return admin.ReplicaGroup{}, fmt.Sprintf("%v: %s", err, out)
	}
	return g, string(out)
}

// isobar writes the configuration of the example for this machine, checks it, and returns
// the command that serves it.
func (h *host) isobar(t *testing.T, dir, program string, hosts []*host) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(example, "isobar.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := h.here(string(data), dir, hosts)
	h.admin = h.address + ":18080"
	for old, now := range map[string]string{
		"listen: \"127.0.0.1:18080\", writable: true": fmt.Sprintf("listen: %q, writable: true", h.admin),
		"/var/lib/isobar": filepath.Join(dir, h.name, "isobar"),
		"group: prod":     "group: prod\n  name: " + h.name,
	} {
		if !strings.Contains(text, old) {
			t.Fatalf("the configuration of the example has no %s", old)
		}
		text = strings.Replace(text, old, now, 1)
	}
	for _, other := range hosts {
		text = strings.Replace(text, fmt.Sprintf("%q", other.address+":18001"), fmt.Sprintf("{name: %s, address: %q}", other.name, other.address+":18001"), 1)
	}
	file := filepath.Join(dir, h.name+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, "check", "-c", file).CombinedOutput(); err != nil {
		t.Fatalf("isobar check: %v; %s\n%s", err, out, text)
	}
	return []string{program, "serve", "-c", file}
}

// here replaces names of hosts, paths and addresses of the example by those of this machine.
func (h *host) here(text, dir string, hosts []*host) string {
	text = strings.ReplaceAll(text, "%H", h.name)
	for _, other := range hosts {
		text = regexp.MustCompile(`\b`+other.name+`:`).ReplaceAllString(text, other.address+":")
	}
	text = strings.ReplaceAll(text, "0.0.0.0", h.address)
	for _, path := range []string{"/etc/isobar/tls", "/etc/etcd/tls"} {
		text = strings.ReplaceAll(text, path, filepath.Join(dir, "certificates", h.name))
	}
	return text
}

// etcd returns the command of the unit of the example.
func (h *host) etcd(t *testing.T, dir string, hosts []*host) []string {
	t.Helper()
	flags := unitFlags(t)
	for i := range flags {
		flags[i] = strings.Replace(h.here(flags[i], dir, hosts), "/var/lib/etcd", filepath.Join(dir, h.name, "etcd"), 1)
	}
	return append([]string{binary, "--log-level", "error"}, flags...)
}

// unitFlags are the flags in the unit of etcd.
func unitFlags(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(example, "etcd.service"))
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(strings.ReplaceAll(string(data), "\\\n", " "), "ExecStart=")
	line, _, _ := strings.Cut(command, "\n")
	words := strings.Fields(line)
	if !found || len(words) < 2 || words[0] != "/usr/local/bin/etcd" {
		t.Fatalf("the unit starts %q", line)
	}
	return words[1:]
}

// TestComposeIsTheUnit asserts that etcd in containers has the flags of the unit.
func TestComposeIsTheUnit(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(example, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct{ Command []string }
	}
	if err := yaml.Unmarshal(data, &compose); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, word := range unitFlags(t) {
		word = strings.ReplaceAll(word, "%H", "${HOST}")
		if n := len(want); n > 0 && !strings.HasPrefix(word, "--") {
			want[n-1] += "=" + word
		} else {
			want = append(want, word)
		}
	}
	if got := compose.Services["etcd"].Command; !slices.Equal(got[1:], want) {
		t.Errorf("compose.yaml starts etcd with %q, the unit with %q", got, want)
	}
}
