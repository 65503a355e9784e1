package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// callRate is at how many calls a second every client works.
const callRate = 100

// outcome is what became of calls.
type outcome struct {
	Served map[string]int `json:"served"` // by the backend that answered
	Failed map[string]int `json:"failed"` // by the client's text
}

func (o *outcome) calls() int { return total(o.Served) + total(o.Failed) }

// add adds what became of further calls.
func (o *outcome) add(more outcome) {
	for into, counts := range map[*map[string]int]map[string]int{&o.Served: more.Served, &o.Failed: more.Failed} {
		if *into == nil {
			*into = map[string]int{}
		}
		for name, n := range counts {
			(*into)[name] += n
		}
	}
}

func total(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// share is the part of the answered calls that went to a backend.
func (o *outcome) share(name string) float64 {
	return float64(o.Served[name]) / float64(max(1, total(o.Served)))
}

// client is a process of somebody else's xDS code that makes calls.
type client struct {
	id    string // node.id
	in    io.Writer
	lines chan string // what it prints
	parse func(c *client, n int) (outcome, error)
	log   *testhelp.Log
}

// kind is a kind of client.
type kind struct {
	name string
	api  string // of xDS, as Isobar sees it
	// command returns the program and its arguments; the bootstrap is in its
	// environment. Clients that can't be asked for calls print every call, and
	// parse reads n of those lines.
	command func(t *testing.T, target string) *exec.Cmd
	parse   func(c *client, n int) (outcome, error)
	forgets bool     // starts without ignore_resource_deletion
	flags   []string // of isobar bootstrap grpc, too
	env     []string // of the client, too
}

// The API versions that gRPC uses, as /v1/clients calls them.
const (
	v3 = "v3"
	v2 = "v2"
)

// kinds are the gRPC clients, all of which use ADS and report load.
var kinds = []kind{
	{name: "grpc-go", api: v3, command: func(t *testing.T, target string) *exec.Cmd {
		t.Helper()
		return exec.CommandContext(context.Background(), built(t, "./clients/go"), target, fmt.Sprint(callRate))
	}, parse: (*client).ask},
	{name: "grpc-js", api: v3, command: func(t *testing.T, target string) *exec.Cmd {
		t.Helper()
		modules := nodeModules(t)
		cmd := exec.CommandContext(context.Background(), "node", "clients/node/client.js", target, fmt.Sprint(callRate))
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
		return cmd
	}, parse: (*client).ask},
	{name: "gRPC Python", api: v3, command: func(t *testing.T, target string) *exec.Cmd {
		t.Helper()
		// Debian's, whatever else is in the path.
		return exec.CommandContext(context.Background(), "/usr/bin/python3", "clients/python/client.py", target, fmt.Sprint(callRate))
	}, parse: (*client).ask},
	{name: "gRPC Python, newest", api: v3, command: func(t *testing.T, target string) *exec.Cmd {
		t.Helper()
		packages := pythonPackages(t)
		cmd := exec.CommandContext(context.Background(), "python3", "clients/python/client.py", target, fmt.Sprint(callRate))
		cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
		return cmd
	}, parse: (*client).ask},
	{name: "grpc-java", api: v3, command: func(t *testing.T, target string) *exec.Cmd {
		t.Helper()
		return java(t, "Client", target, fmt.Sprint(callRate))
	}, parse: (*client).ask},
	{name: "gRPC C++", api: v3, command: func(t *testing.T, target string) *exec.Cmd {
		t.Helper()
		return exec.CommandContext(context.Background(), compiled(t, "client"), target, fmt.Sprint(callRate))
	}, parse: (*client).ask},
	interop(interopClient, v3, "v1.64.1"),
	interop(interopClientV2, v2, "v1.50.1"), // one of the last that speak v2
}

// interop is gRPC's own client for tests of control planes.
func interop(name, api, version string) kind {
	return kind{name: name, api: api, parse: (*client).overhear, command: func(t *testing.T, target string) *exec.Cmd {
		t.Helper()
		path := goTool(t, "google.golang.org/grpc/interop/xds/client", version)
		return exec.CommandContext(context.Background(), path, "-server="+target, fmt.Sprintf("-qps=%d", callRate),
			"-rpc=EmptyCall", "-rpc_timeout=5s", "-stats_port=0", "-print_response")
	}}
}

// bootstrap is the file that `isobar bootstrap grpc` prints, for a client in
// us/a. Without the feature xds_v3 of the server a client speaks v2.
func (k kind) bootstrap(t *testing.T, xds, id string) []byte {
	t.Helper()
	args := []string{"bootstrap", "grpc", "--server", xds, "--node-id", id, "--cluster", "web", "--locality", "us/a"}
	out, err := exec.CommandContext(t.Context(), isobarPath, append(args, k.flags...)...).Output()
	if err != nil {
		t.Fatalf("isobar bootstrap grpc: %v", err)
	}
	if k.forgets {
		out = bytes.ReplaceAll(out, []byte(`"ignore_resource_deletion",`), nil)
	}
	if k.api == v3 {
		return out
	}
	old := bytes.ReplaceAll(out, []byte(`"xds_v3",`), nil)
	if !json.Valid(old) || bytes.Equal(old, out) {
		t.Fatalf("no xds_v3 in the bootstrap, or not alone: %s", out)
	}
	return old
}

// start starts a client in us/a that calls services one after the other.
func (k kind) start(t *testing.T, xds string, services ...string) *client {
	t.Helper()
	c := &client{id: strings.NewReplacer(" ", "-", "(", "", ")", "").Replace(k.name) + "-" + services[0], lines: make(chan string, 100_000), parse: k.parse, log: new(testhelp.Log)}
	if k.forgets {
		c.id += "-forgets"
	}
	bootstrap := filepath.Join(t.TempDir(), "bootstrap.json")
	if err := os.WriteFile(bootstrap, k.bootstrap(t, xds, c.id), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := k.command(t, "xds:///"+strings.Join(services, ",xds:///"))
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(append(cmd.Env, "GRPC_XDS_BOOTSTRAP="+bootstrap), k.env...)
	cmd.Stderr = c.log
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", k.name, err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(c.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			select {
			case c.lines <- s.Text():
			default: // nobody reads what it prints unasked
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended on its own, which the test has seen
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %.4000s", k.name, c.log.String())
		}
	})
	return c
}

// call makes n calls.
func (c *client) call(t *testing.T, n int) outcome {
	t.Helper()
	o, err := c.parse(c, n)
	if err != nil {
		t.Fatalf("%s: %v; it says: %.2000s", c.id, err, c.log.String())
	}
	return o
}

// ready waits until calls are answered.
func (c *client) ready(t *testing.T) {
	t.Helper()
	await(t, c.id+" that is answered", func() error {
		if o := c.call(t, 5); len(o.Failed) > 0 {
			return fmt.Errorf("failed: %v", o.Failed)
		}
		return nil
	})
}

// line returns the next line that the client prints.
func (c *client) line(within time.Duration) (string, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case line, ok := <-c.lines:
		if !ok {
			return "", io.ErrUnexpectedEOF
		}
		return line, nil
	case <-timer.C:
		return "", fmt.Errorf("silent for %s", within)
	}
}

// ask is for our own programs: a number in, an outcome out.
func (c *client) ask(n int) (o outcome, err error) {
	if _, err := fmt.Fprintln(c.in, n); err != nil {
		return o, err
	}
	line, err := c.line(time.Duration(n)*time.Second/callRate + patience)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		return o, fmt.Errorf("%q: %w", line, err)
	}
	return o, nil
}

var (
	answered = regexp.MustCompile(`^RPC "EmptyCall", from host (\S+), addr`)
	refused  = regexp.MustCompile(`^RPC "EmptyCall", failed with (.*)$`)
)

// overhear is for the interop client, which calls all the time and prints what
// became of each call.
func (c *client) overhear(n int) (outcome, error) {
	o := outcome{Served: map[string]int{}, Failed: map[string]int{}}
	for empty := false; !empty; { // what it printed before
		select {
		case _, ok := <-c.lines:
			if !ok {
				return o, io.ErrUnexpectedEOF
			}
		default:
			empty = true
		}
	}
	for o.calls() < n {
		line, err := c.line(patience)
		if err != nil {
			return o, err
		}
		if m := answered.FindStringSubmatch(line); m != nil {
			o.Served[m[1]]++
		} else if m := refused.FindStringSubmatch(line); m != nil {
			o.Failed[m[1]]++
		}
	}
	return o, nil
}
